"""From what people type to specs: names and paths become models, clusters and stacks; what is left
out gets a stated default."""

from __future__ import annotations

from dataclasses import dataclass

from planner.inputs import catalog
from planner.inputs import cluster as request
from planner.inputs.calibration import Calibration, read_calibration
from planner.inputs.run import _price
from planner.ledger import Sourced
from planner.specs.base import PlanError
from planner.specs.cluster import MAX_GPUS, ClusterSpec, ClusterTemplate
from planner.specs.hardware import GpuSpec, LinkSpec, NvmeSpec, TypicalNode
from planner.specs.options import Options
from planner.units import UnitError, parse


def _link(name: str, scope: str, flag: str, measured: Calibration | None = None) -> LinkSpec:
    try:
        if measured and name in measured.own_links:
            link = measured.own_links[name]
        else:
            link = catalog.load("networks", LinkSpec, name)
            if measured and link.id in measured.links:
                link = catalog.load_overlaid(
                    "networks", LinkSpec, name, measured.links[link.id], "links." + link.id
                )
    except PlanError as error:
        raise PlanError(
            flag if error.field == "link" else error.field,
            error.value,
            str(error).split(" - ", 1)[1],
        ) from None
    if link.scope != scope:
        where = "inside a node" if link.scope == "intra_node" else "between nodes"
        raise PlanError(
            flag, name, f"is a link {where}; `dpplan list networks` shows which links go where"
        )
    return link


def cluster_spec(
    *,
    gpu: str | None,
    gpus: int,
    cluster: str | None = None,
    gpus_per_node: int | None = None,
    intra_node: str | None = None,
    inter_node: str | None = None,
    nics_per_node: int | None = None,
    nic_bandwidth: str | float | None = None,
    price: str | float | None = None,
    clock: float | None = None,
    power_limit: str | None = None,
    host_link: str | None = None,
    drives: Drives | None = None,
    market: str | None = None,
    calibration: Calibration | None = None,
) -> tuple[ClusterSpec, list[str]]:
    """A concrete cluster and the assumptions made. Raises PlanError naming the option."""
    assumed: list[str] = []
    if gpus < 1 or gpus > MAX_GPUS:
        raise PlanError("--gpus", gpus, f"must be between 1 and {MAX_GPUS:,}")
    template = catalog.load("clusters", ClusterTemplate, cluster) if cluster else None
    if gpu is None and template is None and (calibration is None or calibration.device is None):
        raise PlanError("--gpu", gpu, "name a GPU (`dpplan list gpus`) or a cluster (--cluster)")
    own = calibration.device if calibration else None
    if own is not None and gpu in (None, own.id):
        card = own
    else:
        card = catalog.load("gpus", GpuSpec, gpu or (template.gpu if template else ""))
    if calibration and card is not own:
        if calibration.gpu != card.id:
            raise PlanError(
                "--calibration",
                calibration.path,
                f"was measured on {calibration.gpu}, the request is for {card.id}",
            )
        card = catalog.load_overlaid(
            "gpus", GpuSpec, gpu or card.id, calibration.overlay, calibration.path
        )
    if template and gpu and card.id != catalog.load("gpus", GpuSpec, template.gpu).id:
        raise PlanError(
            "--gpu", gpu, f"cluster {template.id} has {template.gpu}; leave out --gpu or --cluster"
        )
    node: TypicalNode | ClusterTemplate = template or card.node
    per_node = gpus_per_node or node.gpus_per_node
    if not 1 <= per_node <= 1024:
        raise PlanError("--gpus-per-node", per_node, "must be between 1 and 1024")
    if gpus < per_node and gpus_per_node is None:
        per_node = gpus
    if gpus > per_node and gpus % per_node:
        below, above = gpus // per_node * per_node, -(-gpus // per_node) * per_node
        raise PlanError(
            "--gpus",
            gpus,
            f"is no multiple of {per_node} GPUs per node; take {below} or {above}, "
            "or set --gpus-per-node",
        )
    inside = _link(intra_node or node.intra_node, "intra_node", "--intra-node", calibration)
    between = _link(inter_node or node.inter_node, "inter_node", "--inter-node", calibration)
    nics = nics_per_node or node.nics_per_node
    if not 1 <= nics <= 256:
        raise PlanError("--nics-per-node", nics, "must be between 1 and 256")
    speed = _nic_speed(
        nic_bandwidth, between, node, inter_node is not None and inter_node != node.inter_node
    )
    usd = _price(price, card, template, market)
    domain = node.nvlink_domain or per_node
    if intra_node and not inside.id.startswith(("nvlink", "infinity")):
        domain = per_node
    if not template and gpus > 1:
        assumed.append(
            f"node: {per_node} x {card.title}, {inside.title} inside, {nics} x"
            f" {speed * 8 / 1e9:.0f} Gbit/s {between.title} between (the usual node of this GPU;"
            " set --cluster, --intra-node, --inter-node, --nics-per-node)"
        )
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
        host_link=_link(host_link or node.host_link, "intra_node", "--host-link", calibration),
        host_memory=node.host_memory,
        nvme=_nvme(drives, node),
        usd_per_gpu_hour=usd,
        clock=None if clock is None else Sourced(clock, "1", "measured", "stated in the request"),
        power_limit=_power_limit(power_limit, card),
    )
    return spec, assumed


@dataclass(frozen=True)
class Drives:
    """What a request says of the NVMe drives of a node; `used` where it offloads to them."""

    read: str | None = None
    write: str | None = None
    capacity: str | None = None
    used: bool = False


def _nvme(asked: Drives | None, node: TypicalNode | ClusterTemplate) -> NvmeSpec | None:
    """Drives of a node: what the request states over what the profile knows; None where neither
    knows both speeds.

    Left out where the request neither uses nor states any: whether a rented node has drives is for
    the user to say.
    """
    if asked is None:
        return None
    given = {
        name: text
        for name in ("read", "write", "capacity")
        if (text := getattr(asked, name)) is not None
    }
    if not given and not asked.used:
        return None
    stated: dict[str, Sourced] = {}
    for name, text in given.items():
        option, (unit, example) = (
            f"--nvme-{name}",
            ("B", "30 TB") if name == "capacity" else ("B/s", "10 GB/s"),
        )
        try:
            value = parse(text, unit)
        except UnitError as error:
            raise PlanError(option, text, f"{error}; write for example '{example}'") from None
        if not any(letter.isalpha() for letter in text.lower().replace("e", "")):
            raise PlanError(option, text, f"needs its unit: write for example '{example}'")
        if value <= 0:
            raise PlanError(option, text, "must be positive")
        stated[name] = Sourced(value, unit, "assumed", "stated in the request")
    known = {
        name: number
        for name in NvmeSpec.model_fields
        if (number := getattr(node.nvme, name, None)) is not None
    }
    whole = {**known, **stated}
    missing = [f"--nvme-{name}" for name in ("read", "write") if name not in whole]
    if given and missing:
        raise PlanError(missing[0], None, "is needed too: the profile of this node knows no drives")
    return None if missing else NvmeSpec(**whole)


def _nic_speed(
    asked: str | float | None, link: LinkSpec, node: TypicalNode | ClusterTemplate, other_link: bool
) -> Sourced:
    if asked is not None:
        try:
            value = parse(asked, "B/s")
        except UnitError as error:
            raise PlanError(
                "--nic-bandwidth", asked, f"{error}; write for example '200 Gbit/s'"
            ) from None
        if not isinstance(asked, str) or not any(
            letter.isalpha() for letter in asked.lower().replace("e", "")
        ):
            raise PlanError(
                "--nic-bandwidth",
                asked,
                "needs its unit: write for example '200 Gbit/s' or '25 GB/s'",
            )
        if value <= 0:
            raise PlanError("--nic-bandwidth", asked, "must be positive")
        return Sourced(value, "B/s", "assumed", "stated in the request")
    return link.bandwidth if other_link else node.nic_bandwidth


def _power_limit(asked: str | None, card: GpuSpec) -> Sourced | None:
    if asked is None:
        return None
    try:
        value = parse(asked, "W")
    except UnitError as error:
        raise PlanError("--power-limit", asked, f"{error}; write for example '500 W'") from None
    if not 0 < value <= float(card.power):
        raise PlanError(
            "--power-limit",
            asked,
            f"must be positive and at most the {float(card.power):.0f} W of {card.title}",
        )
    return Sourced(value, "W", "assumed", "stated in the request")


# -------------------------------------------------------------------------------------------------


def node_size(options: Options) -> int:
    """GPUs of a whole node of the request, however many it asks for."""
    if options.gpus_per_node:
        return options.gpus_per_node
    if options.cluster:
        return catalog.load("clusters", ClusterTemplate, options.cluster).gpus_per_node
    if options.gpu is None:
        raise PlanError("--gpu", None, "name a GPU (`dpplan list gpus`) or a cluster (--cluster)")
    return catalog.load("gpus", GpuSpec, options.gpu).node.gpus_per_node


def cluster_of(options: Options) -> ClusterSpec:
    """The cluster of a request on one whole node."""
    calibration = read_calibration(options.calibration) if options.calibration else None
    return request.cluster_spec(
        gpu=options.gpu,
        gpus=node_size(options),
        cluster=options.cluster,
        gpus_per_node=options.gpus_per_node,
        intra_node=options.intra_node,
        inter_node=options.inter_node,
        nics_per_node=options.nics_per_node,
        nic_bandwidth=options.nic_bandwidth,
        price=options.price,
        clock=options.clock,
        power_limit=options.power_limit,
        calibration=calibration,
    )[0]


def unit_cost(options: Options, what: str) -> float:
    """What one GPU costs an hour in US dollars (`cost`), or draws in W (`power`: the limit of its
    board or the one set)."""
    cluster = cluster_of(options)
    if what == "power":
        return float(cluster.power_limit or cluster.gpu.power)
    if cluster.usd_per_gpu_hour is None:
        raise PlanError(
            "--at",
            what,
            f"no price of {cluster.gpu.title} is known; give --price, or compare at equal power",
        )
    return float(cluster.usd_per_gpu_hour) * 3600
