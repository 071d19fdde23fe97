"""How sure an answer is: the spread of measured over predicted step time of the validated runs most
like it.

Runs of one suite share a machine, a team and a way of measuring, so they err together: the spread
between suites is what an unseen cluster meets, and a suite of 300 runs says little more about it
than one of 30. Every validated run counts by how like it is to the plan (GPU, stack, number of
GPUs, size of the model) and by how many others of its suite say the same; the band is the 10 % and
90 % quantile of measured over predicted under these weights, wider where little is known. Predicted
is by numbers fitted without the run's suite, since the errors of numbers chosen with a run in view
say too little about the next.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from planner.evidence.weights import quantile, suite_members
from planner.evidence.weights import suite_weight as _suite_weight
from planner.formulas.params import parameter_count
from planner.ledger import Array
from planner.specs.plan import Plan

RESIDUALS = Path(__file__).parent.parent / "data" / "residuals.csv"

COVERAGE = 0.80  # share of unseen runs that a band should hold

# Of the choices below only rho is an estimate; the others are round numbers near the least interval
# score (Gneiting & Raftery 2007, equation 43) when the bands of each suite are made from all other
# suites, as `dpplan validate --coverage` does. On residuals that never saw their suite they hold 84
# % of runs and 76 % on average over suites (November 2026).
# correlation of errors within a suite: between-suite over total variance over the shipped runs
_RHO = 0.16
_OTHER_GPU = 0.1  # weight of a run on another GPU
_OTHER_STACK = 0.8  # weight of a run with another stack
_OTHER_KIND = 0.5  # weight of a dense run for a mixture of experts, and the other way round
_HALVING = 12.0  # doublings of GPUs, or of parameters, over which the weight of a run halves
_FLOOR = 0.01  # weight of the least alike run
# the band widens by this share of itself over the evidence, counted in independent runs alike
_FEW = 0.3
_PER_DOUBLING = 0.125  # and by this share for every doubling beyond the largest validated cluster
_UNKNOWN = 0.30  # half width of the band where nothing was ever validated


@dataclass(frozen=True)
class Band:
    """Factors on the expected step time that bracket 80 % of the runs alike, and what the band
    rests on."""

    low: float
    high: float
    basis: str
    runs: int


@dataclass(frozen=True)
class Case:
    """What a band depends on."""

    gpu: str
    stack: str
    gpus: int
    parameters: float  # of the model; 0 where not known
    experts: bool = False  # a mixture of experts


@dataclass(frozen=True)
class Residuals:
    """Validated runs as columns of equal length."""

    suite: Array
    gpu: Array
    stack: Array
    gpus: Array
    parameters: Array  # 0 where not known
    experts: Array  # bool: a mixture of experts
    log_ratio: Array  # ln(measured over predicted step time)

    def __len__(self) -> int:
        return len(self.log_ratio)

    def where(self, mask: Array) -> Residuals:
        """Some of the runs."""
        return Residuals(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))


def residuals(rows: Iterable[dict[str, Any]]) -> Residuals:
    """Columns of rows with `suite`, `gpu`, `stack`, `gpus`, `parameters`, `experts` and
    `measured_over_predicted`.

    A row without a suite gets it from its run_id, SUITE-NUMBER.
    """
    kept = list(rows)
    return Residuals(
        suite=np.array([r.get("suite") or r["run_id"].rpartition("-")[0] for r in kept], dtype=str),
        gpu=np.array([r["gpu"] for r in kept], dtype=str),
        stack=np.array([r["stack"] for r in kept], dtype=str),
        gpus=np.array([float(r["gpus"]) for r in kept]),
        parameters=np.array([float(r.get("parameters") or 0) for r in kept]),
        experts=np.array([float(r.get("experts") or 0) > 0 for r in kept], dtype=bool),
        log_ratio=np.log(np.array([float(r["measured_over_predicted"]) for r in kept])),
    )


@cache
def recorded() -> Residuals:
    """The residuals that ship with this version."""
    if not RESIDUALS.exists():
        return residuals([])
    with RESIDUALS.open(encoding="utf-8", newline="") as file:
        return residuals(csv.DictReader(file))


def band(plan: Plan) -> Band:
    """Band of this plan's step time from the shipped residuals."""
    model = plan.model
    case = Case(
        plan.cluster.gpu.id,
        plan.stack.release_of or plan.stack.id,
        plan.cluster.gpus,
        float(parameter_count(model)),
        model.moe is not None,
    )
    return _recorded_band(case)


@cache
def _recorded_band(case: Case) -> Band:
    """Comparisons ask for the same case again and again."""
    return band_of(recorded(), case)


def band_of(runs: Residuals, case: Case) -> Band:
    """Band of a case from these runs; it always contains the expected time."""
    same_gpu, same_stack = runs.gpu == case.gpu, runs.stack == case.stack
    if not len(runs):
        return Band(1 - _UNKNOWN, 1 + _UNKNOWN, f"no validated run: +-{_UNKNOWN:.0%}, assumed", 0)
    alike, text = _alike(runs, case, same_gpu & same_stack, same_gpu, same_stack)
    weight = _weights(runs, case, same_gpu, same_stack)
    low, high = (
        quantile(runs.log_ratio, weight, q) for q in ((1 - COVERAGE) / 2, (1 + COVERAGE) / 2)
    )
    largest = float(runs.gpus[alike].max())
    beyond = math.log2(case.gpus / largest) if case.gpus > largest else 0.0
    wider = 1 + _FEW / float(weight.sum()) + _PER_DOUBLING * beyond
    errors = np.abs(np.exp(-runs.log_ratio[alike]) - 1)
    error = quantile(
        errors, np.ones(len(errors)), 0.5
    )  # np.median would import numpy.ma, 7 ms of a cold start
    scale = f", none on more than {largest:.0f} GPUs" if beyond else ""
    return Band(
        math.exp(min(0.0, low) * wider),
        math.exp(max(0.0, high) * wider),
        f"{text}, median error {error:.1%}{scale}",
        int(alike.sum()) if (same_gpu | same_stack).any() else 0,
    )


def _alike(runs: Residuals, case: Case, both: Array, gpu: Array, stack: Array) -> tuple[Array, str]:
    """The runs most like the case, and how to say so."""
    if both.any():
        return both, f"{_count(both)} on {case.gpu} with {case.stack}"
    if gpu.any():
        return gpu, f"{_count(gpu)} on {case.gpu}, other stacks"
    if stack.any():
        return (
            stack,
            f"no validated run on {case.gpu}; {_count(stack)} with {case.stack} on other GPUs",
        )
    everything = np.ones(len(runs), dtype=bool)
    return (
        everything,
        f"no validated run on {case.gpu} or with {case.stack}; {_count(everything)} on other GPUs",
    )


def _count(mask: Array) -> str:
    n = int(mask.sum())
    return f"{n:,} validated run{'' if n == 1 else 's'}"


def suite_weight(members: Array) -> Array:
    """Weight of a run whose suite has this many."""
    return _suite_weight(members, _RHO)


def _weights(runs: Residuals, case: Case, same_gpu: Array, same_stack: Array) -> Array:
    """Likeness of each run, less for every other run of its suite."""
    likeness = np.where(same_gpu, 1.0, _OTHER_GPU) * np.where(same_stack, 1.0, _OTHER_STACK)
    doublings = np.abs(np.log2(runs.gpus / case.gpus))
    known = (runs.parameters > 0) & (case.parameters > 0)
    size = np.where(known, runs.parameters, 1.0) / np.where(known, case.parameters, 1.0)
    doublings = doublings + np.abs(np.log2(size))
    kind = np.where(runs.experts == case.experts, 1.0, _OTHER_KIND)
    return (
        kind
        * (likeness * 2.0 ** (-doublings / _HALVING) + _FLOOR)
        * suite_weight(suite_members(runs.suite))
    )
