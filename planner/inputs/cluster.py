"""From options to a cluster: names and paths become GPUs, links and nodes; what is left out is the
usual node of the GPU."""

from __future__ import annotations

from planner.formulas import run_level
from planner.inputs import catalog
from planner.inputs.calibration import Calibration, read_calibration
from planner.inputs.prices import markets, price
from planner.inputs.run import electricity
from planner.ledger import Sourced
from planner.specs.base import PlanError
from planner.specs.cluster import ONE_SWITCH, OVERSUBSCRIBED, ClusterSpec, ClusterTemplate
from planner.specs.hardware import GpuSpec, LinkSpec, NvmeSpec, TypicalNode
from planner.specs.host import HostSpec
from planner.specs.names import NVME
from planner.specs.options import Options, flag, rows
from planner.specs.options.numbers import number
from planner.specs.price import Price
from planner.units import in_unit

Node = TypicalNode | ClusterTemplate
_STATED = "stated in the request"


def cluster_spec(
    options: Options, measured: Calibration | None = None
) -> tuple[ClusterSpec, list[str]]:
    """The cluster of a request and the assumptions made. Raises PlanError naming the option.

    measured: a calibration; by default the file that the request names.
    """
    if options.calibration and measured is None:
        measured = read_calibration(options.calibration)
    card, template = _card(options, measured)
    node: Node = template or card.node
    gpus, per_node = options.gpus, _per_node(options, node)
    inside = _link(options, "intra_node", node.intra_node, measured)
    between, speed, of_cards = _fabric(options, node, measured)
    nics = options.nics_per_node or node.nics_per_node
    domain = node.nvlink_domain or per_node
    if options.intra_node and not inside.spans_nodes:
        domain = per_node
    assumed = []
    if not template and gpus > 1:
        assumed.append(
            f"node: {per_node} x {card.title}, {inside.title} inside, {nics} x"
            f" {in_unit(speed, 'Gbit/s'):.0f} Gbit/s {between.title} between (the usual node of"
            " this GPU; set --cluster, --intra-node, --inter-node, --nics-per-node)"
        )
    if gpus > per_node:
        assumed += of_cards
    island, share, of_islands = _islands(options, template, gpus / per_node)
    assumed += of_islands
    spec = ClusterSpec(
        title=template.title if template else f"{card.title} nodes",
        gpu=card,
        gpus=gpus,
        gpus_per_node=per_node,
        intra_node=inside,
        inter_node=between,
        nics_per_node=nics,
        nic_bandwidth=speed,
        nvlink_domain=max(domain, per_node),
        island_nodes=island,
        oversubscription=share,
        host_link=_link(options, "host_link", node.host_link, measured),
        host=_host(options, node, measured),
        host_stated=bool(options.host or template or (measured and measured.host)),
        host_threads=options.host_threads,
        host_memory=node.host_memory,
        nvme=_nvme(options, node),
        price=price(options, card.id, template),
        clock=None if options.clock is None else Sourced(options.clock, "1", "measured", _STATED),
        power_limit=_power_limit(options, card),
        verified=measured.verified if measured else None,
    )
    return spec, assumed


def node_size(options: Options) -> int:
    """GPUs of a whole node of the request, however many GPUs it states."""
    if options.gpus_per_node:
        return options.gpus_per_node
    measured = read_calibration(options.calibration) if options.calibration else None
    card, template = _card(options, measured)
    return (template or card.node).gpus_per_node


def price_of(options: Options, market: str | None = None) -> Price:
    """Price of a GPU-hour of the request, here or in another market."""
    measured = read_calibration(options.calibration) if options.calibration else None
    card, template = _card(options, measured)
    return price(options.changed(market=market) if market else options, card.id, template)


def every_price(options: Options) -> list[Sourced]:
    """Prices of a GPU-hour of the request: in every market without preemption, if it leaves the
    market open."""
    price = price_of(options)
    listed = price.is_listed and options.market is None
    kept = [market for market in markets() if market.preempted_after is None]
    quoted = [price_of(options, market.id) for market in kept] if listed else [price]
    return [price.usd_per_gpu_hour for price in quoted if price.usd_per_gpu_hour is not None]


def unit_cost(options: Options, kind: str) -> float:
    """One GPU of the request: its hourly price in US dollars (`cost`; own hardware with the
    electricity of full load), or its power in W (`power`: the limit of its board or the one set).
    Raises PlanError without a price in that market."""
    cluster, _ = cluster_spec(options.changed(gpus=node_size(options)))
    board_w = float(cluster.power_limit or cluster.gpu.power)
    if kind == "power":
        return board_w
    usd = cluster.price.usd_per_gpu_hour
    if usd is None:
        raise PlanError(
            "--at",
            kind,
            f"{cluster.price.missing}; give --price or another --market, or compare at equal power",
        )
    facility = run_level.HOST_FACTOR * (options.pue or run_level.PUE)
    drawn_w = run_level.energy_j(1, board_w, run_level.POWER_FRAC, facility, 1.0)
    each = in_unit(float(usd) + float(drawn_w) * electricity(options), "USD/h")
    if each == 0:
        raise PlanError(
            "--at", kind, "machines that cost nothing cost the same in any number; compare at power"
        )
    return each


def _card(options: Options, measured: Calibration | None) -> tuple[GpuSpec, ClusterTemplate | None]:
    """The GPU, as a calibration corrects it, and the cluster that was named."""
    gpu, cluster = options.gpu, options.cluster
    template = catalog.load("clusters", ClusterTemplate, cluster) if cluster else None
    device = measured.device if measured else None
    if gpu is None and template is None and device is None:
        raise PlanError("--gpu", gpu, "name a GPU (`dpplan list gpus`) or a cluster (--cluster)")
    if device is not None and gpu in (None, device.id):
        card = device
    else:
        card = catalog.load("gpus", GpuSpec, gpu or (template.gpu if template else ""))
    if measured and card is not device:
        if measured.gpu != card.id:
            raise PlanError(
                "--calibration",
                measured.path,
                f"was measured on {measured.gpu}, the request is for {card.id}",
            )
        card = catalog.load_overlaid(
            "gpus", GpuSpec, gpu or card.id, measured.overlay, measured.path
        )
    if template and gpu and card.id != catalog.load("gpus", GpuSpec, template.gpu).id:
        raise PlanError(
            "--gpu", gpu, f"cluster {template.id} has {template.gpu}; leave out --gpu or --cluster"
        )
    return card, template


def _per_node(options: Options, node: Node) -> int:
    """GPUs per node: a part of one, or whole nodes."""
    gpus, per_node = options.gpus, options.gpus_per_node or node.gpus_per_node
    if gpus < per_node and options.gpus_per_node is None:
        per_node = gpus
    if gpus > per_node and gpus % per_node:
        below, above = gpus // per_node * per_node, -(-gpus // per_node) * per_node
        raise PlanError(
            "--gpus",
            gpus,
            f"is not a multiple of {per_node} GPUs per node; take {below} or {above}, "
            "or set --gpus-per-node",
        )
    return per_node


def _link(options: Options, name: str, usual: str, measured: Calibration | None) -> LinkSpec:
    """A link that an option names, or the usual one."""
    return link_spec(getattr(options, name) or usual, name, measured)


def _fabric(
    options: Options, node: Node, measured: Calibration | None
) -> tuple[LinkSpec, Sourced, list[str]]:
    """The fabric between nodes, the speed of a card, and what was assumed of it.

    A fabric other than the node's sets the speed of the cards where its name states one. A name
    without a speed, such as `roce`, means the node's own fabric if it has this name, and else keeps
    the speed of the node's cards.
    """
    network, stated = options.inter_node, _stated(options, "nic_bandwidth")
    usual = link_spec(node.inter_node, "inter_node", measured)
    named = _link(options, "inter_node", node.inter_node, measured)
    same_kind = named.takes_speed_of_cards and named.fabric == usual.fabric
    same = named.id == usual.id and not catalog.is_path(network or usual.id)
    if same or same_kind:
        return usual, stated or node.nic_bandwidth, []
    if stated or not named.takes_speed_of_cards:
        return named, stated or named.bandwidth, []
    kept = float(node.nic_bandwidth) >= float(named.bandwidth)
    speed = node.nic_bandwidth if kept else named.bandwidth
    whose = "that of this node's cards" if kept else "the slowest that speak it"
    remark = (
        f"network: {in_unit(speed, 'Gbit/s'):.0f} Gbit/s per card, {whose}: {network} names no"
        " speed (set --nic-bandwidth)"
    )
    return named, speed, [remark]


def _islands(
    options: Options, template: ClusterTemplate | None, nodes: float
) -> tuple[int | None, Sourced | None, list[str]]:
    """Nodes of an island of the network, oversubscription of the links between islands, and what
    was assumed of them."""
    islands = (template.island_nodes, template.oversubscription) if template else (None, None)
    island = options.island_nodes or islands[0]
    stated = options.oversubscription
    share = islands[1] if stated is None else Sourced(stated, "1", "assumed", _STATED)
    if island is None and share is not None and share > 1:
        raise PlanError(
            flag("oversubscription"),
            options.oversubscription,
            "applies to links between islands, and this cluster has none: give --island-nodes",
        )
    if share is None and options.island_nodes is not None:
        raise PlanError(
            flag("island_nodes"),
            options.island_nodes,
            "acts where links between islands are oversubscribed, and this cluster states none:"
            " give --oversubscription",
        )
    if share is None and nodes > ONE_SWITCH:
        remark = (
            f"network: {nodes:.0f} nodes on one non-blocking fabric; islands with fewer links"
            " between them (--oversubscription) slow what spans them (set --island-nodes), and the"
            f" band reaches to {OVERSUBSCRIBED:g} times fewer"
        )
        return island, share, [remark]
    return island, share, []


def link_spec(network: str, name: str, measured: Calibration | None = None) -> LinkSpec:
    """A link by id, alias or path, as a calibration measured it. Raises PlanError naming the option
    `name`, which also decides where the link must be."""
    try:
        if measured and network in measured.own_links:
            link = measured.own_links[network]
        else:
            link = catalog.load("networks", LinkSpec, network)
            if measured and link.id in measured.links:
                link = catalog.load_overlaid(
                    "networks", LinkSpec, network, measured.links[link.id], "links." + link.id
                )
    except PlanError as error:
        is_network = error.field == catalog.LINK
        raise PlanError(
            flag(name) if is_network else error.field, error.value, error.remedy
        ) from None
    scope = "inter_node" if name == "inter_node" else "intra_node"
    if link.scope != scope:
        where = "inside a node" if link.scope == "intra_node" else "between nodes"
        raise PlanError(
            flag(name),
            network,
            f"is a link {where}; `dpplan list networks` shows which links go where",
        )
    return link


def _host(options: Options, node: Node, measured: Calibration | None) -> HostSpec:
    """Processors and memory of a node: those that the request names, those that were measured, or
    the usual ones."""
    if options.host is None and measured is not None and measured.host is not None:
        return measured.host
    return catalog.load("hosts", HostSpec, options.host or node.host)


def _nvme(options: Options, node: Node) -> NvmeSpec | None:
    """Drives of a node: what the request states over what the profile knows; None where neither
    knows both speeds.

    Left out where the request neither uses nor states any: whether a rented node has drives is for
    the user to say.
    """
    stated = {
        name: value
        for name in NvmeSpec.model_fields
        if (value := _stated(options, f"nvme_{name}")) is not None
    }
    if not stated and options.offload not in NVME:
        return None
    known = {
        name: value
        for name in NvmeSpec.model_fields
        if (value := getattr(node.nvme, name, None)) is not None
    }
    whole = {**known, **stated}
    missing = [flag(f"nvme_{name}") for name in ("read", "write") if name not in whole]
    if stated and missing:
        raise PlanError(missing[0], None, "is needed too: the profile of this node knows no drives")
    return None if missing else NvmeSpec(**whole)


def _stated(options: Options, name: str) -> Sourced | None:
    """A number of the request as one with a source."""
    value = number(options, name)
    unit = rows(Options)[name].says.unit
    return None if value is None else Sourced(value, unit, "assumed", _STATED)


def _power_limit(options: Options, card: GpuSpec) -> Sourced | None:
    value = _stated(options, "power_limit")
    if value is not None and value > float(card.power):
        raise PlanError(
            "--power-limit",
            options.power_limit,
            f"must be positive and at most the {float(card.power):.0f} W of {card.title}",
        )
    return value
