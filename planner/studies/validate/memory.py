"""Evidence of runs on the memory they needed, and calibration of the chance to fit: each suite's
runs under all other suites."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import structs

from planner.estimate import Estimates
from planner.evidence import memory as evidence
from planner.formulas.optimizers import OPTIMIZERS
from planner.ledger import Array
from planner.search.room import firm_bytes, fit_chance
from planner.specs.document import plain
from planner.studies.documents.validate import ChanceLine, FitCoverage, Need, Outcome, Relation, Run
from planner.studies.runs.cells import Row

# statistics that have a counterpart in the estimate; "active" counts less than "allocated", and one
# that the source does not name can be any
_COUNTED = ("allocated", "reserved", "nvidia-smi")
_LARGEST = 2.0  # capacity over predicted need beyond which that it ran says nothing
# chances by which runs are gathered: finer where a verdict changes
_EDGES = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 1.0)

# columns of planner/data/memory_residuals.csv beside those of `Need`
_OF_RUN = ("run_id", "suite", "gpu", "stack", "experts")


def peak_bytes(one: Estimates, kind: str) -> float:
    """The statistic the source measured, of the rank it printed: torch's counters, or what
    nvidia-smi shows."""
    m, printed = one.memory, _printed_stage(one)
    statistic: Array = m.stage_reserved if kind in ("reserved", "nvidia-smi") else m.stage_peaks
    if kind == "nvidia-smi":
        return float(statistic[printed, 0]) + _outside(one)
    # managed memory is not of torch's allocator
    paged = OPTIMIZERS[one.plan.training.optimizer].paged
    outside = m.stage_components[printed]["optimizer"][0] if paged else 0.0
    return float(statistic[printed, 0] - outside)


def _printed_stage(one: Estimates) -> int:
    """Place of the pipeline stage whose rank the stack prints."""
    first = one.plan.stack.peak_of == "first stage"
    return 0 if first else int(np.argmax(one.memory.stage_reserved[:, 0]))


def _outside(one: Estimates) -> float:
    return float(one.memory.context[0] + one.memory.communicators[0])


# cells whose opening leaves the need of memory known: sequence parallelism is little of it, and a
# stage of ZeRO that is not stated is judged where a peak was measured
_KNOWN_WITHOUT = {"zero", "sequence_parallel"}


def need(
    row: Row,
    one: Estimates,
    measured_bytes: float | None,
    outcome: Outcome,
    opened: Collection[str],
) -> Need | None:
    """Evidence of the run on needed device memory; None without any.

    A measured statistic takes the place of the predicted one. Without one it needed at most what
    the GPU has, or more if it ran out of memory. A run whose recompute or ZeRO stage is not printed
    gives none, since the estimate may be of another recipe.

    opened: cells of its layout that were searched.
    """
    if not row.get("recompute", "") or not _KNOWN_WITHOUT.issuperset(opened):
        return None
    kind = row.get("memory_kind", "")
    if outcome != "oom" and measured_bytes is not None and kind in _COUNTED:
        stage = _printed_stage(one)
        predicted = float(one.memory.stage_reserved[stage, 0]) + _outside(one)
        if one.memory.firm is not None and not OPTIMIZERS[one.plan.training.optimizer].paged:
            predicted = min(predicted, float(one.memory.firm[0]))
        relation: Relation = "="
        loose = predicted - _outside(one) - float(one.memory.stage_peaks[stage, 0])
        ratio = 1 + (measured_bytes - peak_bytes(one, kind)) / predicted
        least = ratio - loose / predicted
    else:
        if not row.get("zero", ""):
            return None
        relation = ">" if outcome == "oom" else "<"
        least = ratio = one.plan.usable_bytes / float(firm_bytes(one)[0])
        if outcome != "oom" and ratio > _LARGEST:
            return None
    layout = one.table.layout(0)
    return Need(
        relation=relation,
        need_over_predicted=ratio,
        least_over_predicted=least,
        recompute=layout.recompute,
        sharded=evidence.is_sharded(layout.zero),
        pipeline=layout.pp > 1,
        offload=layout.offload != "none",
        adapters=one.plan.training.adapter is not None,
        quantised=one.plan.training.base_precision is not None,
    )


def chance(one: Estimates) -> float:
    """Chance to fit of a table of one layout."""
    return float(fit_chance(one, np.array([0]))[0])


def residual_rows(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Runs that say something of their need: the columns of planner/data/memory_residuals.csv."""
    return [
        {**{name: getattr(run, name) for name in _OF_RUN}, **plain(run.need)}
        for run in runs
        if run.need is not None and not run.not_expressed
    ]


RESIDUAL_COLUMNS = (*_OF_RUN, *(field.name for field in structs.fields(Need)))


# ------------------------------------------------------------------------------------- coverage


def coverage(found: Iterable[Run]) -> FitCoverage:
    """Whether chances made from all other suites hold: the runs that ran or failed by the chance
    they had, and the measured peaks below the need that 95 % should stay below."""
    kept = [run for run in found if run.need is not None and not run.not_expressed]
    runs = evidence.observed(residual_rows(kept))
    suites = np.array([run.suite for run in kept], dtype=str)
    shipped = evidence.recorded()
    chances = np.zeros(len(kept))
    within = np.zeros(len(kept))
    for suite in sorted(set(suites.tolist())):
        own = np.flatnonzero(suites == suite)
        cases = [_case(kept[i]) for i in own]
        kinds = sorted(set(cases), key=cases.index)
        each = evidence.shares(shipped.where(shipped.suite != suite), kinds)
        for i, case in zip(own, cases, strict=True):
            cumulative = each[kinds.index(case)]
            chances[i] = evidence.chance_within(cumulative, math.log(kept[i].room))
            within[i] = evidence.chance_within(cumulative, float(runs.log_ratio[i]))
    ran = np.array([run.outcome != "oom" for run in kept], dtype=bool)
    measured = runs.relation == evidence.MEASURED
    below = within <= evidence.WANTED
    return FitCoverage(
        n=len(kept),
        brier=float(((chances - ran) ** 2).mean()) if len(kept) else None,
        reliability=_reliability(chances, ran),
        promised=evidence.WANTED,
        peaks=int(measured.sum()),
        below_frac=_mean(below[measured]),
        mean_of_suites=_mean(
            [float(below[measured & (suites == s)].mean()) for s in np.unique(suites[measured])]
        ),
    )


def _case(run: Run) -> evidence.Case:
    assert run.need is not None
    return evidence.Case(
        run.stack,
        run.gpu,
        evidence.recompute_class(run.need.recompute),
        run.need.sharded,
        run.need.pipeline,
        run.need.offload,
        run.experts > 0,
        run.need.adapters,
        run.need.quantised,
        run.features["loop"] > 0,
    )


def _reliability(chances: Array, ran: Array) -> list[ChanceLine]:
    out = []
    place = np.digitize(chances, _EDGES[1:-1])
    for i, (low, high) in enumerate(itertools.pairwise(_EDGES)):
        own = place == i
        out.append(
            ChanceLine(
                low=low,
                high=high,
                n=int(own.sum()),
                mean_chance=_mean(chances[own]),
                ran_frac=_mean(ran[own]),
            )
        )
    return out


def _mean(values: Array | Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None
