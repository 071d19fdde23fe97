"""Options of the whole run become specs: price, storage, checkpoints."""

from __future__ import annotations

from functools import cache

from planner.inputs import catalog
from planner.inputs.calibration import Calibration
from planner.inputs.options import number
from planner.ledger import Sourced
from planner.specs.base import PlanError
from planner.specs.cluster import ClusterTemplate
from planner.specs.hardware import GpuSpec, PriceSpec, StorageSpec
from planner.specs.options import Options, flag
from planner.specs.run import RunSpec


def price(options: Options, card: GpuSpec, template: ClusterTemplate | None) -> Sourced | None:
    """What a GPU-hour costs: as stated, of the market asked for, of the cluster, or the usual list
    price. In US dollars per second."""
    stated, market = number(options, "price"), options.market
    if stated is not None:
        return Sourced(stated, "USD/h", "assumed", "stated in the request")
    if market is None:
        own = template.usd_per_gpu_hour if template else None
        return own if own is not None else usual_price(card.id)
    listed = {spec.market: usd for spec, usd in _listed_prices(card.id)}
    if market not in listed:
        known = (
            f"is listed on {', '.join(sorted(listed))}" if listed else "is on no list; give --price"
        )
        raise PlanError("--market", market, f"{card.title} {known}")
    return listed[market]


_MARKETS = (
    "on-demand",
    "secure",
    "community",
    "spot",
    "cheapest-listing",
)  # the first that is listed is taken


@cache
def _listed_prices(gpu: str) -> tuple[tuple[PriceSpec, Sourced], ...]:
    """Dated list prices of this exact GPU, in US dollars per second."""
    found = []
    for entry in catalog.read_toml(catalog.profiles_folder() / "prices.toml", "prices.toml").get(
        "price", []
    ):
        if entry.get("gpu") == gpu:
            price = catalog.build(PriceSpec, entry, "prices.toml", gpu)
            number = price.usd_per_gpu_hour
            found.append(
                (
                    price,
                    Sourced(
                        number, "USD/h", number.kind, f"{price.source} ({price.market})", price.date
                    ),
                )
            )
    return tuple(found)


def usual_price(gpu: str) -> Sourced | None:
    """The dated list price of this exact GPU that most people would pay, None when none is known.
    In US dollars per second."""

    def rank(market: str) -> int:
        return _MARKETS.index(market) if market in _MARKETS else len(_MARKETS)

    found = _listed_prices(gpu)
    return min(found, key=lambda x: (rank(x[0].market), float(x[1])))[1] if found else None


@cache
def storages() -> tuple[StorageSpec, ...]:
    """Shipped places for checkpoints."""
    entries = catalog.read_toml(catalog.profiles_folder() / "storage.toml", "storage.toml").get(
        "storage", []
    )
    return tuple(
        catalog.build(StorageSpec, entry, "storage.toml", str(entry.get("id"))) for entry in entries
    )


def storage_of(options: Options, name: str) -> StorageSpec | float | None:
    """A storage by id, or what it carries for the whole job in bytes per second."""
    asked = getattr(options, name)
    known = {one.id: one for one in storages()}
    if asked in known:
        return known[asked]
    if asked is not None and "/" not in asked:
        raise PlanError(
            flag(name), asked, f"needs its unit, as in '20 GB/s', or is one of {', '.join(known)}"
        )
    return number(options, name)


def run_spec(options: Options, nodes: int, calibration: Calibration | None = None) -> RunSpec:
    """Options of the whole run as a spec, with the storage that a calibration measured. Raises
    PlanError naming the option."""
    for name in ("lifetime", "use", "electricity"):
        if getattr(options, name) is not None and options.capex is None:
            raise PlanError(
                flag(name),
                getattr(options, name),
                "is of own hardware: give --capex, dollars per GPU",
            )
    if options.capex is not None and (options.price is not None or options.market is not None):
        raise PlanError(
            "--capex",
            options.capex,
            "own hardware has no price per hour; leave out --price and --market",
        )
    stored, read = storage_of(options, "storage"), None
    if isinstance(stored, StorageSpec):
        stored = stored.bytes_per_s(nodes)
    measured = calibration.storage if calibration else None
    if stored is None and measured is not None:
        stored = measured.bytes_per_s(nodes)
        read = None if measured.read_per_node is None else float(measured.read_per_node) * nodes
    return RunSpec(
        storages=storages(),
        mtbf_s=number(options, "mtbf"),
        checkpoint=options.checkpoint or "async",
        interval_s=number(options, "checkpoint_interval"),
        storage_bytes_per_s=stored,
        storage_read_bytes_per_s=read,
        storage_measured=options.storage is None and measured is not None,
        restart_s=number(options, "restart"),
        spare_nodes=options.spare_nodes,
        capex_usd=number(options, "capex"),
        lifetime_s=number(options, "lifetime"),
        use_frac=number(options, "use"),
        electricity_usd_per_j=number(options, "electricity"),
        pue=options.pue,
        grid_kg_per_j=number(options, "grid"),
    )
