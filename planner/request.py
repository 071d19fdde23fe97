"""From what people type to specs: names and paths become models, clusters and stacks; what is left out gets a stated default."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from planner import catalog
from planner.ledger import Sourced
from planner.specs.base import PlanError
from planner.specs.cluster import MAX_GPUS, ClusterSpec, ClusterTemplate
from planner.specs.hardware import GpuSpec, LinkSpec, NvmeSpec, PriceSpec, StorageSpec, TypicalNode
from planner.specs.model import ModelSpec
from planner.specs.options import Options, flag
from planner.specs.run import RunSpec
from planner.specs.stack import StackSpec
from planner.units import UnitError, parse

BATCH_TOKENS = 4 * 2**20  # tokens per step when no batch is given: Llama 2 (arXiv 2307.09288, section 2.2)


def model_spec(name: str) -> tuple[ModelSpec, list[str]]:
    """A model by catalogue name, path to a model TOML, or path to a Hugging Face config.json; and what was inferred."""
    from_hub = name.startswith("hf:")
    if not from_hub and (not catalog.is_path(name) or name.endswith(".toml")):
        return catalog.load("models", ModelSpec, name), []
    from planner import huggingface  # only a config.json needs its readers

    return huggingface.read_config(_from_hub(name) if from_hub else catalog.user_path(name, "--model"))


def _from_hub(name: str) -> Path:
    """config.json of hf:org/name, through huggingface_hub and its cache (the `hub` extra)."""
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        remedy = "reading from the Hugging Face Hub needs huggingface_hub: install dpplan[hub], or give the path of a config.json"
        raise PlanError("--model", name, remedy) from None
    try:
        return Path(hf_hub_download(name.removeprefix("hf:"), "config.json"))
    except Exception as error:  # network, permission, unknown repository: whatever the client raises is the user's to read
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise PlanError("--model", name, f"cannot be fetched ({reason}); download its config.json and give the path") from None


def stack_spec(name: str, calibration: Calibration | None = None) -> StackSpec:
    """A software stack by id, alias or path, with what a calibration measured of it."""
    stack = catalog.load("stacks", StackSpec, name)
    if calibration is None or stack.id not in calibration.stacks:
        return stack
    return catalog.load_overlaid("stacks", StackSpec, name, calibration.stacks[stack.id], "stacks." + stack.id)


def read_calibration(name: str) -> Calibration:
    """A calibration file: `gpu` names the profile it corrects, `overlay`, `links.<id>` and `stacks.<id>` the corrected fields.

    A device that has no shipped profile is a whole one in `device`, its own links whole ones in `links.<id>`.
    """
    path = catalog.user_path(name, "--calibration")
    data = catalog.read_toml(path, "--calibration")
    known = {"schema_version", "gpu", "date", "source", "overlay", "device", "links", "stacks", "storage", "node"}
    for key in data:
        if key not in known:
            raise PlanError("--calibration", str(path), f"unknown key {key!r}; known keys: {', '.join(sorted(known))}")
    if type(data.get("schema_version")) is not int or data["schema_version"] != 1:
        raise PlanError("--calibration", str(path), f"schema_version is {data.get('schema_version')!r}; this version reads 1")
    gpu, overlay, links, stacks = data.get("gpu"), *(data.get(key, {}) for key in ("overlay", "links", "stacks"))
    if not isinstance(gpu, str) or not all(isinstance(table, dict) for table in (overlay, links, stacks)):
        raise PlanError("--calibration", str(path), 'needs gpu = "<id>" and tables [overlay], [links.<id>] and [stacks.<id>]')
    for kind, tables in (("links", links), ("stacks", stacks)):
        for key, fields in tables.items():
            if not isinstance(fields, dict):
                raise PlanError("--calibration", str(path), f"{kind}.{key} must be a table of fields")
    device, own = None, {}
    if "device" in data:
        device = catalog.build(GpuSpec, data["device"], "--calibration", f"{path} [device]")
        if device.id != gpu:
            raise PlanError("--calibration", str(path), f"gpu is {gpu!r} and [device] is {device.id!r}; they must be the same")
        if overlay:
            raise PlanError("--calibration", str(path), "has both [device] and [overlay]; a whole device needs no overlay")
    for link, fields in links.items():
        if link in catalog.ids("networks"):
            continue
        if "id" not in fields or device is None:
            raise PlanError("--calibration", str(path), f"[links.{link}]: {catalog.near('networks', link)}")
        own[link] = catalog.build(LinkSpec, fields, "--calibration", f"{path} [links.{link}]")
    for stack in stacks:
        if stack not in catalog.ids("stacks"):
            raise PlanError("--calibration", str(path), f"[stacks.{stack}]: {catalog.near('stacks', stack)}")
    storage = catalog.build(StorageSpec, data["storage"], "--calibration", f"{path} [storage]") if "storage" in data else None
    return Calibration(str(path), gpu, overlay, links, stacks, device, own, storage)


@dataclass(frozen=True)
class Calibration:
    """Measured fields that replace those of shipped profiles when hardware is loaded; formulas never know."""

    path: str
    gpu: str
    overlay: dict[str, Any]
    links: dict[str, Any]
    stacks: dict[str, Any] = dataclasses.field(default_factory=dict)
    device: GpuSpec | None = None  # a device of its own, where no shipped profile is corrected
    own_links: dict[str, LinkSpec] = dataclasses.field(default_factory=dict)
    storage: StorageSpec | None = None  # what a node wrote and read


def _link(name: str, scope: str, flag: str, measured: Calibration | None = None) -> LinkSpec:
    try:
        if measured and name in measured.own_links:
            link = measured.own_links[name]
        else:
            link = catalog.load("networks", LinkSpec, name)
            if measured and link.id in measured.links:
                link = catalog.load_overlaid("networks", LinkSpec, name, measured.links[link.id], "links." + link.id)
    except PlanError as error:
        raise PlanError(flag if error.field == "link" else error.field, error.value, str(error).split(" - ", 1)[1]) from None
    if link.scope != scope:
        where = "inside a node" if link.scope == "intra_node" else "between nodes"
        raise PlanError(flag, name, f"is a link {where}; `dpplan list networks` shows which links go where")
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
            raise PlanError("--calibration", calibration.path, f"was measured on {calibration.gpu}, the request is for {card.id}")
        card = catalog.load_overlaid("gpus", GpuSpec, gpu or card.id, calibration.overlay, calibration.path)
    if template and gpu and card.id != catalog.load("gpus", GpuSpec, template.gpu).id:
        raise PlanError("--gpu", gpu, f"cluster {template.id} has {template.gpu}; leave out --gpu or --cluster")
    node: TypicalNode | ClusterTemplate = template or card.node
    per_node = gpus_per_node or node.gpus_per_node
    if not 1 <= per_node <= 1024:
        raise PlanError("--gpus-per-node", per_node, "must be between 1 and 1024")
    if gpus < per_node and gpus_per_node is None:
        per_node = gpus
    if gpus > per_node and gpus % per_node:
        below, above = gpus // per_node * per_node, -(-gpus // per_node) * per_node
        raise PlanError("--gpus", gpus, f"is no multiple of {per_node} GPUs per node; take {below} or {above}, "
                        "or set --gpus-per-node")  # fmt: skip
    inside = _link(intra_node or node.intra_node, "intra_node", "--intra-node", calibration)
    between = _link(inter_node or node.inter_node, "inter_node", "--inter-node", calibration)
    nics = nics_per_node or node.nics_per_node
    if not 1 <= nics <= 256:
        raise PlanError("--nics-per-node", nics, "must be between 1 and 256")
    speed = _nic_speed(nic_bandwidth, between, node, inter_node is not None and inter_node != node.inter_node)
    usd = _price(price, card, template, market)
    domain = node.nvlink_domain or per_node
    if intra_node and not inside.id.startswith(("nvlink", "infinity")):
        domain = per_node
    if not template and gpus > 1:
        assumed.append(
            f"node: {per_node} x {card.title}, {inside.title} inside, {nics} x {speed * 8 / 1e9:.0f} Gbit/s {between.title} "
            "between (the usual node of this GPU; set --cluster, --intra-node, --inter-node, --nics-per-node)"
        )
    spec = ClusterSpec(
        title=template.title if template else f"{card.title} nodes",
        gpu=card, gpus=gpus, gpus_per_node=per_node, intra_node=inside, inter_node=between, nics_per_node=nics,
        nic_bandwidth=speed, nvlink_domain=max(domain, per_node),
        host_link=_link(host_link or node.host_link, "intra_node", "--host-link", calibration), host_memory=node.host_memory,
        nvme=_nvme(drives, node), usd_per_gpu_hour=usd,
        clock=None if clock is None else Sourced(clock, "1", "measured", "stated in the request"),
        power_limit=_power_limit(power_limit, card),
    )  # fmt: skip
    return spec, assumed


@dataclass(frozen=True)
class Drives:
    """What a request says of the NVMe drives of a node; `used` where it offloads to them."""

    read: str | None = None
    write: str | None = None
    capacity: str | None = None
    used: bool = False


def _nvme(asked: Drives | None, node: TypicalNode | ClusterTemplate) -> NvmeSpec | None:
    """Drives of a node: what the request states over what the profile knows; None where neither knows both speeds.

    Left out where the request neither uses nor states any: whether a rented node has drives is for the user to say.
    """
    if asked is None:
        return None
    given = {name: text for name in ("read", "write", "capacity") if (text := getattr(asked, name)) is not None}
    if not given and not asked.used:
        return None
    stated: dict[str, Sourced] = {}
    for name, text in given.items():
        option, (unit, example) = f"--nvme-{name}", ("B", "30 TB") if name == "capacity" else ("B/s", "10 GB/s")
        try:
            value = parse(text, unit)
        except UnitError as error:
            raise PlanError(option, text, f"{error}; write for example '{example}'") from None
        if not any(letter.isalpha() for letter in text.lower().replace("e", "")):
            raise PlanError(option, text, f"needs its unit: write for example '{example}'")
        if value <= 0:
            raise PlanError(option, text, "must be positive")
        stated[name] = Sourced(value, unit, "assumed", "stated in the request")
    known = {name: number for name in NvmeSpec.model_fields if (number := getattr(node.nvme, name, None)) is not None}
    whole = {**known, **stated}
    missing = [f"--nvme-{name}" for name in ("read", "write") if name not in whole]
    if given and missing:
        raise PlanError(missing[0], None, "is needed too: the profile of this node knows no drives")
    return None if missing else NvmeSpec(**whole)


def _nic_speed(asked: str | float | None, link: LinkSpec, node: TypicalNode | ClusterTemplate, other_link: bool) -> Sourced:
    if asked is not None:
        try:
            value = parse(asked, "B/s")
        except UnitError as error:
            raise PlanError("--nic-bandwidth", asked, f"{error}; write for example '200 Gbit/s'") from None
        if not isinstance(asked, str) or not any(letter.isalpha() for letter in asked.lower().replace("e", "")):
            raise PlanError("--nic-bandwidth", asked, "needs its unit: write for example '200 Gbit/s' or '25 GB/s'")
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
        raise PlanError("--power-limit", asked, f"must be positive and at most the {float(card.power):.0f} W of {card.title}")
    return Sourced(value, "W", "assumed", "stated in the request")


def _price(asked: str | float | None, card: GpuSpec, template: ClusterTemplate | None, market: str | None) -> Sourced | None:
    if asked is not None:
        try:
            value = parse(asked, "USD/h")
        except UnitError as error:
            raise PlanError("--price", asked, f"{error}; write dollars per GPU-hour, for example 1.99") from None
        if value < 0:
            raise PlanError("--price", asked, "must not be negative")
        return Sourced(value, "USD/h", "assumed", "stated in the request")
    if template and template.usd_per_gpu_hour is not None and market is None:
        return template.usd_per_gpu_hour
    if market is None:
        return usual_price(card.id)
    listed = {spec.market: price for spec, price in _listed_prices(card.id)}
    if market not in listed:
        known = f"is listed on {', '.join(sorted(listed))}" if listed else "is on no list; give --price"
        raise PlanError("--market", market, f"{card.title} {known}")
    return listed[market]


_MARKETS = ("on-demand", "secure", "community", "spot", "cheapest-listing")  # the first that is listed is taken


@cache
def _listed_prices(gpu: str) -> tuple[tuple[PriceSpec, Sourced], ...]:
    """Dated list prices of this exact GPU, in US dollars per second."""
    found = []
    for entry in catalog.read_toml(catalog.profiles_folder() / "prices.toml", "prices.toml").get("price", []):
        if entry.get("gpu") == gpu:
            price = catalog.build(PriceSpec, entry, "prices.toml", gpu)
            number = price.usd_per_gpu_hour
            found.append((price, Sourced(number, "USD/h", number.kind, f"{price.source} ({price.market})", price.date)))
    return tuple(found)


def usual_price(gpu: str) -> Sourced | None:
    """The dated list price of this exact GPU that most people would pay, None when none is known. In US dollars per second."""

    def rank(market: str) -> int:
        return _MARKETS.index(market) if market in _MARKETS else len(_MARKETS)

    found = _listed_prices(gpu)
    return min(found, key=lambda x: (rank(x[0].market), float(x[1])))[1] if found else None


# ------------------------------------------------------------------------------------------------- the whole run


def number(options: Options, name: str, unit: str, *, low: float = 0.0, positive: bool = True) -> float | None:
    """An option with a unit in base units; a bare number is in `unit`."""
    given = getattr(options, name)
    if given is None:
        return None
    try:
        value = parse(given, unit)
    except UnitError as error:
        raise PlanError(flag(name), given, f"{error}; write for example '1 {unit}'") from None
    if value < low or (positive and value == 0):
        raise PlanError(flag(name), given, "must be positive" if positive else "must not be negative")
    return value


@cache
def storages() -> tuple[StorageSpec, ...]:
    """Shipped places for checkpoints."""
    entries = catalog.read_toml(catalog.profiles_folder() / "storage.toml", "storage.toml").get("storage", [])
    return tuple(catalog.build(StorageSpec, entry, "storage.toml", str(entry.get("id"))) for entry in entries)


def _storage(options: Options, nodes: int) -> float | None:
    """--storage as an id or a speed, in bytes per second for the whole job."""
    asked = options.storage
    known = {one.id: one for one in storages()}
    if asked is None or asked in known:
        return None if asked is None else known[asked].bytes_per_s(nodes)
    if "/" not in asked:
        raise PlanError("--storage", asked, f"needs its unit, as in '20 GB/s', or is one of {', '.join(known)}")
    return number(options, "storage", "B/s")


def run_spec(options: Options, nodes: int, calibration: Calibration | None = None) -> RunSpec:
    """What a request says of its whole run, with the storage that a calibration measured. Raises PlanError naming the option."""
    use = number(options, "use", "1")
    if use is not None and use > 1:
        raise PlanError("--use", options.use, "is a share between 0 and 1: write '80%' or '0.8'")
    for name in ("lifetime", "use", "electricity"):
        if getattr(options, name) is not None and options.capex is None:
            raise PlanError(flag(name), getattr(options, name), "is of own hardware: give --capex, dollars per GPU")
    if options.capex is not None and (options.price is not None or options.market is not None):
        raise PlanError("--capex", options.capex, "own hardware has no price per hour; leave out --price and --market")
    stored, read = _storage(options, nodes), None
    measured = calibration.storage if calibration else None
    if stored is None and measured is not None:
        stored = measured.bytes_per_s(nodes)
        read = None if measured.read_per_node is None else float(measured.read_per_node) * nodes
    return RunSpec(
        mtbf_s=number(options, "mtbf", "h"), checkpoint=options.checkpoint or "async",
        interval_s=number(options, "checkpoint_interval", "min"), storage_bytes_per_s=stored, storage_read_bytes_per_s=read,
        storage_measured=options.storage is None and measured is not None,
        restart_s=number(options, "restart", "min", positive=False), spare_nodes=options.spare_nodes,
        capex_usd=number(options, "capex", "USD"), lifetime_s=number(options, "lifetime", "years"), use_frac=use,
        electricity_usd_per_j=number(options, "electricity", "USD/kWh", positive=False), pue=options.pue,
        grid_kg_per_j=number(options, "grid", "g/kWh", positive=False),
    )  # fmt: skip


def default_batch(seq_len: int, gpus: int) -> int:
    """Sequences per step near 4 Mi tokens that every data-parallel degree dividing `gpus` divides."""
    return gpus * max(1, round(BATCH_TOKENS / seq_len / gpus))
