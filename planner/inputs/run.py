"""Options of the whole run become specs: storage, checkpoints, electricity."""

from __future__ import annotations

from functools import cache
from typing import Any

from planner.formulas import run_level
from planner.inputs import catalog
from planner.inputs.calibration import Calibration
from planner.inputs.prices import taken_back
from planner.specs.base import PlanError
from planner.specs.hardware import StorageSpec
from planner.specs.options import Options, flag, rows
from planner.specs.options.numbers import number, number_in
from planner.specs.run import RunSpec

_KWH_J = 3.6e6


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
    wanted = getattr(options, name)
    known = {storage.id: storage for storage in storages()}
    if wanted in known:
        return known[wanted]
    if wanted is not None and "/" not in wanted:
        raise PlanError(
            flag(name), wanted, f"needs its unit, as in '20 GB/s', or is one of {', '.join(known)}"
        )
    return number(options, name)


def run_spec(options: Options, nodes: int, calibration: Calibration | None = None) -> RunSpec:
    """Options of the whole run as a spec, with the storage that a calibration measured. Raises
    PlanError naming the option."""
    stored, read = storage_of(options, "storage"), None
    if isinstance(stored, StorageSpec):
        stored = stored.bytes_per_s(nodes)
    measured = calibration.storage if calibration else None
    if stored is None and measured is not None:
        stored = measured.bytes_per_s(nodes)
        read = None if measured.read_per_node is None else float(measured.read_per_node) * nodes
    mtbf_s, unit = (None, "") if options.mtbf is None else number_in(options, "mtbf")
    return RunSpec(
        storages=storages(),
        mtbf_gpu_s=mtbf_s if unit == rows(Options)["mtbf"].says.unit else None,
        mtbf_s=mtbf_s if unit == rows(Options)["mtbf"].says.or_unit else None,
        checkpoint=options.checkpoint or "async",
        interval_s=number(options, "checkpoint_interval"),
        storage_bytes_per_s=stored,
        storage_read_bytes_per_s=read,
        storage_measured=options.storage is None and measured is not None,
        **_taken_back(options),
        as_project=options.run_as == "project",
        restart_s=number(options, "restart"),
        spare_nodes=options.spare_nodes,
        failure_stops=options.failure_stops or "job",
        electricity_usd_per_j=electricity(options),
        pue=options.pue,
        grid_kg_per_j=number(options, "grid"),
    )


def _taken_back(options: Options) -> dict[str, Any]:
    """Keys of a run on machines that are taken back."""
    market = taken_back(options)
    if market is None or market.preempted_after is None:
        return {}
    return {
        "preempted_s": float(market.preempted_after),
        "preempted_source": market.preempted_after.source,
        "notice_s": None if market.notice is None else float(market.notice),
    }


def electricity(options: Options) -> float:
    """Electricity price per joule in US dollars of owned machines; 0 for rented ones, whose price
    includes it."""
    if options.capex is None:
        return 0.0
    stated = number(options, "electricity")
    return run_level.ELECTRICITY_USD_PER_KWH / _KWH_J if stated is None else stated
