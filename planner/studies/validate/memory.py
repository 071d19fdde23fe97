"""Evidence of runs on the memory they needed, and calibration of the chance to fit: each suite's
runs under all other suites."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from planner.estimate import Estimates
from planner.evidence import memory as evidence
from planner.formulas.optimizers import OPTIMIZERS
from planner.ledger import Array
from planner.search.room import firm_bytes, fit_chance
from planner.studies.documents.validate import Need, Outcome, Relation
from planner.studies.runs.cells import Row

# statistics that have a counterpart in the estimate; "active" counts less than "allocated", and one
# that the source does not name can be any
_COUNTED = ("allocated", "reserved", "nvidia-smi")
_LARGEST = 2.0  # capacity over predicted need beyond which that it ran says nothing


def peak_bytes(estimates: Estimates, kind: str) -> float:
    """The statistic the source measured, of the rank it printed: torch's counters, or what
    nvidia-smi shows."""
    m, printed = estimates.memory, _printed_stage(estimates)
    statistic: Array = m.stage_reserved if kind in ("reserved", "nvidia-smi") else m.stage_peaks
    if kind == "nvidia-smi":
        return float(statistic[printed, 0]) + _outside(estimates)
    # managed memory is not of torch's allocator
    paged = OPTIMIZERS[estimates.plan.training.optimizer].paged
    outside = m.stage_components[printed]["optimizer"][0] if paged else 0.0
    return float(statistic[printed, 0] - outside)


def _printed_stage(estimates: Estimates) -> int:
    """Place of the pipeline stage whose rank the stack prints."""
    first = estimates.plan.stack.peak_of == "first stage"
    return 0 if first else int(np.argmax(estimates.memory.stage_reserved[:, 0]))


def _outside(estimates: Estimates) -> float:
    return float(estimates.memory.context[0] + estimates.memory.communicators[0])


# cells whose opening leaves the need of memory known: sequence parallelism is little of it, and a
# stage of ZeRO that is not stated is judged where a peak was measured
_KNOWN_WITHOUT = {"zero", "sequence_parallel"}


def need(
    row: Row,
    estimates: Estimates,
    measured_bytes: float | None,
    outcome: Outcome,
    opened: Collection[str],
) -> Need | None:
    """Evidence of the run on needed device memory; None without any.

    A measured statistic takes the place of the predicted one. Without one it needed at most what
    the GPU has, or more if it ran out of memory. A run whose recompute or ZeRO stage is not printed
    gives none, since the estimate may assume another recipe.

    opened: cells of its layout that were searched.
    """
    if not row.get("recompute", "") or not _KNOWN_WITHOUT.issuperset(opened):
        return None
    kind = row.get("memory_kind", "")
    if outcome != "oom" and measured_bytes is not None and kind in _COUNTED:
        stage = _printed_stage(estimates)
        predicted = float(estimates.memory.stage_reserved[stage, 0]) + _outside(estimates)
        if (
            estimates.memory.firm is not None
            and not OPTIMIZERS[estimates.plan.training.optimizer].paged
        ):
            predicted = min(predicted, float(estimates.memory.firm[0]))
        relation: Relation = "="
        loose = predicted - _outside(estimates) - float(estimates.memory.stage_peaks[stage, 0])
        ratio = 1 + (measured_bytes - peak_bytes(estimates, kind)) / predicted
        least = ratio - loose / predicted
    else:
        if not row.get("zero", ""):
            return None
        relation = ">" if outcome == "oom" else "<"
        least = ratio = estimates.plan.usable_bytes / float(firm_bytes(estimates)[0])
        if outcome != "oom" and ratio > _LARGEST:
            return None
    layout = estimates.table.layout(0)
    return Need(
        relation=relation,
        need_over_predicted=ratio,
        least_over_predicted=least,
        recompute=layout.recompute,
        sharded=evidence.is_sharded(layout.zero),
        pipeline=layout.pp > 1,
        offload=layout.offload != "none",
        adapters=estimates.plan.training.adapter is not None,
        quantised=estimates.plan.training.quantised,
    )


def chance(estimates: Estimates) -> float:
    """Chance to fit of a table of one layout."""
    return float(fit_chance(estimates, np.array([0]))[0])
