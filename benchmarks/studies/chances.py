"""Verdicts on runs that ran and that ran out of memory, and calibration of the chance to fit: each
suite's runs under the evidence of all other suites.

python -m benchmarks.studies.chances [--suite SUITE] [RUNS.csv ...]
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.studies.residuals import memory_rows
from benchmarks.studies.runs import named, show
from planner.evidence import memory as evidence
from planner.ledger import Array
from planner.studies.documents.validate import Run
from planner.units import percent
from planner.views.view import Block

# chances by which runs are gathered: finer where a verdict changes
_EDGES = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 1.0)


@dataclass(frozen=True)
class ChanceLine:
    """Runs whose chance to fit lay between two bounds."""

    low: float  # lower bound
    high: float  # upper bound
    n: int  # runs
    mean_chance: float | None  # mean of their chances; null without runs
    ran_frac: float | None  # share of them that ran


@dataclass(frozen=True)
class FitCoverage:
    """Whether chances to fit hold, each suite under the evidence of all others."""

    n: int  # runs that say something of their memory
    brier: float | None  # mean squared difference of chance and outcome; smaller is better
    reliability: list[ChanceLine]  # runs by their chance
    promised: float  # share of measured peaks that the wanted room should hold
    peaks: int  # measured peaks
    below_frac: float | None  # share of them that it holds
    mean_of_suites: float | None  # the same, mean over suites


def coverage(validated: Iterable[Run]) -> FitCoverage:
    """Whether chances made from all other suites hold: the runs that ran or failed by the chance
    they had, and the measured peaks below the need that 95 % should stay below."""
    kept = [run for run in validated if run.need is not None and not run.not_expressed]
    runs = evidence.observed(memory_rows(kept))
    suites = np.array([run.suite for run in kept], dtype=str)
    shipped = evidence.recorded()
    chances = np.zeros(len(kept))
    within = np.zeros(len(kept))
    for suite in sorted(set(suites.tolist())):
        members = np.flatnonzero(suites == suite)
        cases = [_case(kept[i]) for i in members]
        kinds = sorted(set(cases), key=cases.index)
        each = evidence.shares(shipped.where(shipped.suite != suite), kinds)
        for i, case in zip(members, cases, strict=True):
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
        members = place == i
        out.append(
            ChanceLine(
                low=low,
                high=high,
                n=int(members.sum()),
                mean_chance=_mean(chances[members]),
                ran_frac=_mean(ran[members]),
            )
        )
    return out


def _mean(values: Array | Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def block(coverage: FitCoverage) -> Block:
    """Whether chances to fit hold on suites they never saw."""
    brier = "-" if coverage.brier is None else f"{coverage.brier:.4f}"
    return Block(
        "Chances to fit, each suite under the evidence of all others",
        text=[
            f"Brier score {brier} over {coverage.n:,} runs; of {coverage.peaks:,} measured peaks"
            f" {percent(coverage.below_frac)} (mean of suites {percent(coverage.mean_of_suites)})"
            f" below the need that {percent(coverage.promised, 0)} should stay below"
        ],
        header=["chance", ">runs", ">mean chance", ">ran"],
        rows=[
            [
                f"{percent(line.low, 0)} to {percent(line.high, 0)}",
                f"{line.n:,}",
                percent(line.mean_chance),
                percent(line.ran_frac),
            ]
            for line in coverage.reliability
        ],
        order="from the least chance",
    )


def verdicts(runs: Iterable[Run]) -> Block:
    """How many runs that ran, and runs out of memory, have the right verdict. Near: within 5 % of
    what the GPU has, where the need was predicted."""
    runs = list(runs)
    rows = []
    for words, ran, whole in _VERDICTS:
        members = [
            run
            for run in runs
            if (run.outcome != "oom") is ran and (not run.not_expressed) is whole
        ]
        wrong = [run for run in members if run.predicted_fits is not ran]
        near = sum(run.room is not None and abs(math.log(run.room)) < _NEAR for run in wrong)
        suites = Counter(run.suite for run in wrong).most_common(_NAMED)
        rows.append(
            [
                words,
                f"{len(members):,}",
                percent(1 - len(wrong) / len(members) if members else None),
                f"{len(wrong)}",
                f"{near}",
                ", ".join(f"{name} {count}" for name, count in suites) or "-",
            ]
        )
    return Block(
        "Verdicts",
        header=["", ">runs", ">right", ">wrong", ">near", "most of the wrong ones"],
        rows=rows,
    )


_NEAR = 0.05  # logarithm of room over need within which a verdict is close
_NAMED = 4  # suites that a line names
# words, whether they ran, whether all they say is in the estimate
_VERDICTS = (
    ("ran", True, True),
    ("ran, with options left out", True, False),
    ("out of memory", False, True),
    ("out of memory, options left out", False, False),
)


if __name__ == "__main__":
    measured_runs = named(__doc__).document.rows
    show(verdicts(measured_runs), block(coverage(measured_runs)))
