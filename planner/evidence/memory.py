"""How likely a layout fits: the spread of the memory that measured runs needed over what was
predicted for them.

Three things are known of runs. Where a peak was measured, the run needed the predicted need of the
device with the measured statistic in place of the predicted one, or less by up to what
fragmentation adds: a full device makes the caching allocator give free blocks back. A run that ran
needed at most what the GPU has, and one that ran out of memory more. All are intervals, which say
most where they are short or end near the prediction. The distribution of ln(need over predicted)
that is most likely under them is found by the self-consistent estimate (Turnbull 1976), with every
run weighed by how like it is to the layout (stack, GPU, and what decides its memory: recompute,
ZeRO-3, pipeline, offloading, experts, adapters, quantised weights) and by how many others of its
suite say the same, and with a wide distribution that counts as one run: what is known where nothing
was measured.

Published runs are mostly runs that ran, so the tail of needs above the capacity is seen in the few
suites that list their failures.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from planner.evidence.weights import quantile, suite_members, suite_weight
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.layout import OFFLOADS, RECOMPUTE_KINDS, recompute_parts
from planner.specs.names import SHARDS_PARAMETERS, Verdict
from planner.specs.plan import Plan
from planner.units import percent

OBSERVED = Path(__file__).parent.parent / "data" / "memory_residuals.csv"

# chance to fit that a search asks for by default: a choice, one start in twenty fails
WANTED = 0.95
NEVER = 1 - WANTED  # below this chance the verdict is "does not fit"

# Choices, round numbers near the best log score of each suite's runs under all other suites
# (`python -m benchmarks.studies.chances` prints how they hold)
_OTHER_STACK = 0.2  # weight of a run with another stack
_OTHER_GPU = 0.8  # of one on another GPU: memory hardly depends on it
_OTHER_KIND = 0.7  # for each of the kinds of KINDS in which a run differs
_CORRELATION = 0.3  # of errors within a suite: between-suite over total variance of measured peaks
# what holds where nothing was measured: a Student t with two degrees of freedom, which counts as so
# many runs
_UNSEEN_RUNS = 1.0
# the same for a user's own training loop, which resembles no measured run, and for a stack without
# a measured peak
_UNSEEN_STACK = 5.0
_UNSEEN_SCALE = 0.1

_REACH, _STEP = 1.0, 0.01  # grid of ln(need over predicted)
_ROUNDS = 20  # of the self-consistent estimate; more move no chance by 0.001

MEASURED, AT_MOST, ABOVE = "=", "<", ">"  # what a run says of its need

KINDS = ("recompute", "sharded", "pipeline", "offload", "experts", "adapters", "quantised")
_RECOMPUTE_CLASSES = ("none", "selective", "full")  # block:N and group:K repeat whole layers
_SELECTIVE = _RECOMPUTE_CLASSES.index("selective")


@dataclass(frozen=True)
class Case:
    """The properties of a layout on which the spread of memory depends."""

    stack: str
    gpu: str
    recompute: int  # class of recompute: none, selective, whole layers
    sharded: bool  # parameters sharded: ZeRO-3
    pipeline: bool
    offload: bool
    experts: bool
    adapters: bool = False  # trained beside frozen weights
    quantised: bool = False  # these in 4 or 8 bit
    loop: bool = False  # a library around which every team writes its loop


@dataclass(frozen=True)
class Observed:
    """Memory bounds that runs state, as columns of equal length."""

    suite: Array
    stack: Array
    gpu: Array
    recompute: Array
    sharded: Array
    pipeline: Array
    offload: Array
    experts: Array
    adapters: Array
    quantised: Array
    relation: Array  # MEASURED, AT_MOST or ABOVE
    log_ratio: Array  # ln of the need, or of its bound, over the predicted need
    log_least: Array  # of a measured peak, the least that the need may be

    def __len__(self) -> int:
        return len(self.log_ratio)

    def where(self, mask: Array) -> Observed:
        """Some of the runs."""
        return Observed(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))


def observed(rows: Iterable[dict[str, Any]]) -> Observed:
    """Columns of rows as planner/data/memory_residuals.csv has them."""
    kept = list(rows)

    def flag(name: str) -> Array:
        return np.array([float(row[name]) > 0 for row in kept], dtype=bool)

    return Observed(
        suite=np.array([row["suite"] for row in kept], dtype=str),
        stack=np.array([row["stack"] for row in kept], dtype=str),
        gpu=np.array([row["gpu"] for row in kept], dtype=str),
        recompute=np.array([recompute_class(row["recompute"]) for row in kept], dtype=int),
        sharded=flag("sharded"),
        pipeline=flag("pipeline"),
        offload=flag("offload"),
        experts=flag("experts"),
        adapters=flag("adapters"),
        quantised=flag("quantised"),
        relation=np.array([row["relation"] for row in kept], dtype=str),
        log_ratio=np.log(np.array([float(row["need_over_predicted"]) for row in kept])),
        log_least=np.log(np.array([float(row["least_over_predicted"]) for row in kept])),
    )


def recompute_class(text: str) -> int:
    """Class of a recompute rule as a layout names it."""
    return int(_class_of(recompute_parts(text)[0]))


def _class_of(kind: Any) -> Any:
    """Class of a kind of recompute: repeating single modules counts as selective, keeping some
    results as whole layers."""
    whole = len(_RECOMPUTE_CLASSES) - 1
    return np.where(kind == RECOMPUTE_KINDS.index("modules"), _SELECTIVE, np.minimum(kind, whole))


@cache
def recorded() -> Observed:
    """Observations that ship with this version."""
    if not OBSERVED.exists():
        return observed([])
    with OBSERVED.open(encoding="utf-8", newline="") as file:
        return observed(csv.DictReader(file))


def forget() -> None:
    """Read the file again on the next use."""
    for kept in (recorded, _recorded_shares, _rooms, _evidence):
        kept.cache_clear()


# ------------------------------------------------------------------------------- distributions


def _grid() -> Array:
    steps = round(_REACH / _STEP)
    return np.arange(-steps, steps + 1) * _STEP


def shares(runs: Observed, cases: Sequence[Case]) -> Array:
    """Cumulative distribution of ln(need over predicted) of each case on the grid, shape (cases,
    points)."""
    grid = _grid()
    # Student's t with two degrees of freedom up to a factor
    unseen = (1 + (grid / _UNSEEN_SCALE) ** 2 / 2) ** -1.5
    counts = np.array([[_unseen_runs(runs, case)] for case in cases])
    base = counts * unseen / unseen.sum()
    chance = base / base.sum(axis=1, keepdims=True)
    if not len(runs):
        return np.cumsum(chance, axis=1)
    weight = np.stack([likeness(runs, case) for case in cases])
    weight = weight * suite_weight(suite_members(runs.suite), _CORRELATION)
    first, last = _places(runs, len(grid))
    alike = _Groups.of(first * len(grid) + last)  # runs with one interval count as one
    weight, first, last = alike.sums(weight), *np.divmod(alike.places, len(grid))
    opens, closes = _Groups.of(first), _Groups.of(last)
    whole = base.sum(axis=1, keepdims=True) + weight.sum(axis=1, keepdims=True)
    for _ in range(_ROUNDS):
        # each run is spread over its interval by what is there
        below = np.cumsum(chance, axis=1)
        inside = below[:, last] - below[:, first] + chance[:, first]
        each = weight / inside
        spread = np.zeros((len(cases), len(grid) + 1))
        spread[:, opens.places] = opens.sums(each)
        spread[:, closes.places + 1] -= closes.sums(each)
        chance = (base + chance * np.cumsum(spread, axis=1)[:, :-1]) / whole
        chance /= chance.sum(axis=1, keepdims=True)
    return np.cumsum(chance, axis=1)


def _unseen_runs(runs: Observed, case: Case) -> float:
    """Runs that the wide distribution counts as."""
    measured = (runs.stack == case.stack) & (runs.relation == MEASURED)
    return _UNSEEN_STACK if case.loop or not measured.any() else _UNSEEN_RUNS


@dataclass(frozen=True)
class _Groups:
    """Columns that belong to the same point of the grid, summed together."""

    places: Array  # points that have any, ascending
    order: Array
    starts: Array

    @classmethod
    def of(cls, points: Array) -> _Groups:
        order = np.argsort(points, kind="stable")
        places, starts = np.unique(points[order], return_index=True)
        return cls(places, order, starts)

    def sums(self, columns: Array) -> Array:
        """Sum of the columns of each point."""
        out: Array = np.add.reduceat(columns[:, self.order], self.starts, axis=1)
        return out


def _places(runs: Observed, points: int) -> tuple[Array, Array]:
    """First and last point of the grid at which the need of each run may lie."""

    def place(log_ratio: Array) -> Array:
        near = np.rint((log_ratio + _REACH) / _STEP)
        return np.clip(near, 0, points - 1).astype(int)

    low, high = place(runs.log_least), place(runs.log_ratio)
    last = points - 1
    above = np.minimum(high + 1, last)
    return (
        np.select([runs.relation == AT_MOST, runs.relation == ABOVE], [0 * low, above], low),
        np.where(runs.relation == ABOVE, last, high),
    )


def likeness(runs: Observed, case: Case) -> Array:
    """Weight of each run for a case, 1 for one like it in all."""
    out: Array = np.where(runs.stack == case.stack, 1.0, _OTHER_STACK) * np.where(
        runs.gpu == case.gpu, 1.0, _OTHER_GPU
    )
    for name in KINDS:
        out = out * np.where(getattr(runs, name) == getattr(case, name), 1.0, _OTHER_KIND)
    return out


def chance_within(cumulative: Array, log_room: Array) -> Array:
    """Chance that the need is at most `exp(log_room)` of the predicted one."""
    grid = _grid()
    return np.interp(log_room, grid, cumulative, left=0.0, right=1.0)


def needed_room(cumulative: Array, chance: float) -> float:
    """Factor on the predicted need that the need stays below with this chance."""
    return math.exp(float(np.interp(chance, cumulative, _grid())))


# ---------------------------------------------------------------------------------- of layouts


def row_number(zero: Array, pp: Array) -> Array:
    """Share of a combination's number that sharding and pipeline decide."""
    return (is_sharded(zero) * 4 + (pp > 1) * 2).astype(np.int8)


def is_sharded(zero: Any) -> Any:
    """Whether a ZeRO stage shards parameters; of one or of many."""
    return zero >= SHARDS_PARAMETERS


def option_number(recompute: Array, offload: Array) -> Array:
    """Share of a combination's number that recompute and offloading decide."""
    kind = _class_of(recompute)
    return (kind * 8 + (offload != OFFLOADS.index("none"))).astype(np.int8)


def combinations(c: Columns) -> Array:
    """Index of each layout's combination of the properties that set the spread of its memory."""
    return row_number(c.zero, c.pp) + option_number(c.recompute, c.offload)


def fit_chances(plan: Plan, combination: Array, device_bytes: Array) -> Array:
    """Chance that the device memory suffices for layouts of these combinations and predicted
    needs."""
    log_room = np.log(plan.usable_bytes / device_bytes)
    cumulative = _of_plan(plan)
    out: Array = np.zeros(len(log_room))
    for number in np.unique(combination):
        rows = combination == number
        out[rows] = chance_within(cumulative[number], log_room[rows])
    return out


def limits(plan: Plan, chance: float = WANTED) -> Array:
    """For every combination, the predicted need in bytes up to which the device memory suffices
    with this chance."""
    out: Array = plan.usable_bytes / _rooms(*_kind(plan), chance)
    return out


_TAIL = 0.1  # of runs below the usual range, and above it


def usual(plan: Plan, c: Columns, row: int = 0) -> tuple[float, float]:
    """Factors on the predicted need of the device between which eight of ten runs like a layout
    are."""
    cumulative = _of_plan(plan)[combinations(c)[row]]
    return needed_room(cumulative, _TAIL), needed_room(cumulative, 1 - _TAIL)


@dataclass(frozen=True)
class Evidence:
    """The evidence of a chance to fit."""

    basis: str  # in words
    runs: int  # measured peaks and trials alike


def evidence(plan: Plan) -> Evidence:
    """The runs behind the chances of a plan: those with its stack, else all."""
    return _evidence(plan.stack.release_of or plan.stack.id, plan.stack.title)


@cache
def _evidence(stack: str, title: str) -> Evidence:
    runs = recorded()
    with_stack = runs.stack == stack
    if not len(runs):
        return Evidence("nothing measured; assumed", 0)
    peaks = runs.relation == MEASURED
    here, elsewhere = (
        _peaks(runs.where(with_stack & peaks)),
        _peaks(runs.where(~with_stack & peaks)),
    )
    trials = _count(int((~peaks).sum()), "run")
    text = f"{here} with {title}, {elsewhere} with others; {trials} that fit or failed"
    return Evidence(text, int(with_stack.sum()))


def _peaks(runs: Observed) -> str:
    if not len(runs):
        return "no measured peak"
    error = quantile(np.abs(np.exp(-runs.log_ratio) - 1), np.ones(len(runs)), 0.5)
    return f"{_count(len(runs), 'measured peak')} (median error {percent(error)})"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def verdict(fits: bool, chance: float) -> Verdict:
    """The answer in words: `fits` from the wanted chance on, and where the expected need is more
    than there is, whether runs like it still ran."""
    if fits:
        return "fits" if chance >= WANTED else "may not fit"
    return "does not fit" if chance < NEVER else "probably does not fit"


def _of_plan(plan: Plan) -> Array:
    return _recorded_shares(*_kind(plan))


def _kind(plan: Plan) -> tuple[str, str, tuple[bool, bool, bool, bool]]:
    """The properties of a plan that its memory distributions depend on."""
    return (
        plan.stack.release_of or plan.stack.id,
        plan.cluster.gpu.id,
        (
            plan.model.routed is not None,
            plan.training.adapter is not None,
            plan.training.quantised,
            plan.stack.own_loop,
        ),
    )


@cache
def _rooms(stack: str, gpu: str, model: tuple[bool, bool, bool, bool], chance: float) -> Array:
    """The factor of `needed_room` for every combination."""
    every = _recorded_shares(stack, gpu, model)
    return np.array([needed_room(entry, chance) for entry in every], dtype=float)


@cache
def _recorded_shares(stack: str, gpu: str, model: tuple[bool, bool, bool, bool]) -> Array:
    """Distributions of every combination, in the order of their numbers.

    model: whether it has experts, trains adapters, has quantised weights, has a loop of its own.
    """
    return shares(
        recorded(),
        [
            Case(stack, gpu, kind, sharded, pipeline, offload, *model)
            for kind in range(len(_RECOMPUTE_CLASSES))
            for sharded in (False, True)
            for pipeline in (False, True)
            for offload in (False, True)
        ],
    )
