"""Which free options of a stack a search takes: kernels, overlap and dispatch (`Plan.free`).

They multiply the space, so they are not crossed with it. The fastest rows of each kind (tensor,
context and expert parallelism) under the stack's defaults are looked at with one option changed at
a time, and each change that gains is kept; the layouts are then searched with what was kept. The
best layouts found are looked at with one option changed again, memory included, and searched again
while that gains. tests/test_software.py compares with every combination of options and layouts of
small spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from planner.estimate import Outline, evaluate
from planner.estimate.factored import Space
from planner.estimate.step import step_time
from planner.formulas.rules import check
from planner.formulas.rules.stack import ACTS
from planner.ledger import Array
from planner.search.choose import ENOUGH, choice, ranked
from planner.search.prune import least_of_rows
from planner.specs.columns import Columns, unique_rows
from planner.specs.plan import Plan, SoftwareChoice

_KINDS = ("tp", "cp", "ep", "sequence_parallel", "zero")
_SMALL = 2  # micro-batches of rows that are looked at
_PROBED = 64  # rows that are looked at with one option changed
_LISTED = 16  # layouts that are looked at with one option changed, of the best found
_GAIN = 1e-6  # relative, below which a change is none
_FORBIDDEN = (np.inf, np.inf)

Choices = tuple[SoftwareChoice, ...]
# (level, amount) of the best layout, the least best; of what is to be beaten it may be any
# other that is no better
Rank = Callable[[Plan, tuple[float, float]], tuple[float, float]]


def probed(plan: Plan, space: Space) -> tuple[Choices, Plan]:
    """(free options that are worth choosing for the fastest rows of each kind, whether they fit or
    not; the plan without those values that make none of these rows faster)."""
    rows = _fastest_of_each(plan, space)
    option = np.lexsort((space.inner["recompute"], space.inner["offload"]))[:1]
    table = Columns(
        **{name: column[rows] for name, column in space.outer.items()},
        **{name: np.repeat(column[option], len(rows)) for name, column in space.inner.items()},
    )

    def seconds(choices: Mapping[str, SoftwareChoice]) -> Array:
        variant, out = plan.choosing(tuple(choices.values())), np.full(len(rows), np.inf)
        kept = _allowed(variant, table)
        if len(kept):
            out[kept] = step_time(variant, table.pick(kept)).seconds
        return out

    now: dict[str, SoftwareChoice] = {}
    least, alive = seconds(now), []
    for one in plan.free:
        if not acts(one.option, table):
            continue
        found = seconds({**now, one.option: one})
        if (found < (1 - _GAIN) * least).any():
            alive.append(one)
        if found.min() < (1 - _GAIN) * least.min():
            now[one.option], least = one, found
    return tuple(now.values()), plan.model_copy(update={"free": tuple(alive)})


def _fastest_of_each(plan: Plan, space: Space) -> Array:
    """The row with the least bound of each kind, the fastest kinds first; of small micro-batches,
    which tell as much."""
    small = _small(space)
    _, kind = unique_rows({name: space.outer[name][small] for name in _KINDS})
    least = least_of_rows(plan, space, small)
    order = np.argsort(least, kind="stable")
    _, first = np.unique(kind[order], return_index=True)
    rows: Array = small[order[np.sort(first)][:_PROBED]]
    return rows


def _small(space: Space) -> Array:
    """Rows of small micro-batches."""
    micro = space.outer["micro_batch"]
    least = float(micro.min()) if len(micro) else 0.0
    return np.flatnonzero(micro <= max(_SMALL, least))


def small_micro_batches(space: Space) -> Space:
    """The part of a space with small micro-batches."""
    rows = _small(space)
    outer = {name: column[rows] for name, column in space.outer.items()}
    return Space.of(outer, space.inner, space.options, space.pattern[rows])


def _acting(plan: Plan, table: Columns) -> Plan:
    """The plan with only the free options that act in some of these layouts."""
    free = tuple(one for one in plan.free if acts(one.option, table))
    return plan.model_copy(update={"free": free})


def acts(option: str, table: Columns) -> bool:
    """Whether an option does something in some of these layouts."""
    return option not in ACTS or bool(np.any(ACTS[option](table)))


def _allowed(plan: Plan, table: Columns) -> Array:
    return np.flatnonzero(np.logical_and.reduce(list(check(plan, table).values())))


def listed(found: Outline) -> Columns:
    """The best layouts found, and of the fastest, for which an option may make room."""
    fastest = np.argsort(found.time.seconds, kind="stable")[:_LISTED]
    return found.rows(np.union1d(np.append(ranked(found, _LISTED), choice(found).row), fastest))


def polished(plan: Plan, start: Choices, best: Columns) -> tuple[Choices, tuple[float, float]]:
    """(free options that are best for some layouts, with the memory that they take; the rank of the
    best of these layouts with them)."""

    def rank(variant: Plan, least: tuple[float, float]) -> tuple[float, float]:
        kept = _allowed(variant, best)
        if not len(kept):
            return _FORBIDDEN
        table = best.pick(kept)
        if least[0] == ENOUGH and step_time(variant, table).seconds.min() >= least[1]:
            return _FORBIDDEN  # whatever memory it needs
        return choice(evaluate(variant, table)).rank

    return _descended(_acting(plan, best), rank, start)


def _descended(
    plan: Plan, rank: Rank, start: Sequence[SoftwareChoice]
) -> tuple[Choices, tuple[float, float]]:
    """(one option after the other at the value that ranks least, the stack's default among them;
    that rank)."""
    now = {one.option: one for one in start}
    least = rank(plan.choosing(tuple(now.values())), _FORBIDDEN)
    values = dict.fromkeys((*start, *plan.free))
    for option in dict.fromkeys(one.option for one in values):
        for one in (None, *(one for one in values if one.option == option)):
            if now.get(option) is one:
                continue
            tried = {name: other for name, other in now.items() if name != option}
            tried |= {} if one is None else {option: one}
            found = rank(plan.choosing(tuple(tried.values())), least)
            level, amount = least
            if found[0] < level or (found[0] == level and found[1] < amount - _GAIN * abs(amount)):
                now, least = tried, found
    return tuple(now.values()), least
