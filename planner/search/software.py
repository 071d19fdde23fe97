"""Which free options of a stack a search takes: kernels, overlap and dispatch (`Plan.free`).

They multiply the space, so they are not crossed with it. The fastest rows of each kind (tensor,
context and expert parallelism) under the stack's defaults are looked at with one option changed at
a time, and each change that gains is kept; the layouts are then searched with what was kept. The
best layouts found are looked at with one option changed again, memory included, and searched again
while that gains. tests/test_software.py compares with every combination of options and layouts of
small spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from planner.estimate import Outline, evaluate
from planner.estimate.factored import Space
from planner.estimate.step import step_time
from planner.formulas.rules import check
from planner.ledger import Array
from planner.search.choose import choice, ranked
from planner.specs.columns import Columns, unique_rows
from planner.specs.plan import Plan, SoftwareChoice

_KINDS = ("tp", "cp", "ep", "sequence_parallel", "zero")
_PROBED = 64  # rows that are looked at with one option changed
_LISTED = 16  # layouts that are looked at with one option changed, of the best found
_GAIN = 1e-6  # relative, below which a change is none
_FORBIDDEN = (np.inf, np.inf)

Choices = tuple[SoftwareChoice, ...]
Rank = Callable[[Plan], tuple[float, float]]  # (level, amount) of the best layout, the least best


def probed(plan: Plan, space: Space, least: Array) -> Choices:
    """Free options that are worth choosing for the fastest rows of each kind, whether they fit or
    not. least: a bound of the seconds of every row."""
    rows = _fastest_of_each(space, least)
    option = np.lexsort((space.inner["recompute"], space.inner["offload"]))[:1]
    table = Columns(
        **{name: column[rows] for name, column in space.outer.items()},
        **{name: np.repeat(column[option], len(rows)) for name, column in space.inner.items()},
    )

    def rank(variant: Plan) -> tuple[float, float]:
        kept = _allowed(variant, table)
        if not len(kept):
            return _FORBIDDEN
        return 0.0, float(step_time(variant, table.pick(kept)).seconds.min())

    return _descended(plan, rank, ())


def _fastest_of_each(space: Space, least: Array) -> Array:
    """The row with the least bound of each kind, the fastest kinds first."""
    _, kind = unique_rows({name: space.outer[name] for name in _KINDS})
    order = np.argsort(least, kind="stable")
    _, first = np.unique(kind[order], return_index=True)
    rows: Array = order[np.sort(first)][:_PROBED]
    return rows


def _allowed(plan: Plan, table: Columns) -> Array:
    return np.flatnonzero(np.logical_and.reduce(list(check(plan, table).values())))


def polished(plan: Plan, start: Choices, found: Outline) -> Choices:
    """Free options that are best for the best layouts found, with the memory that they take."""
    rows = ranked(found, _LISTED)
    best = found.rows(rows if len(rows) else np.array([choice(found).row]))

    def rank(variant: Plan) -> tuple[float, float]:
        kept = _allowed(variant, best)
        return choice(evaluate(variant, best.pick(kept))).rank if len(kept) else _FORBIDDEN

    return _descended(plan, rank, start)


def _descended(plan: Plan, rank: Rank, start: Sequence[SoftwareChoice]) -> Choices:
    """One option after the other at the value that ranks least, the stack's default among them."""
    now = {one.option: one for one in start}
    least = rank(plan.choosing(tuple(now.values())))
    for option in dict.fromkeys(one.option for one in plan.free):
        for one in (None, *(one for one in plan.free if one.option == option)):
            if now.get(option) is one:
                continue
            tried = {name: other for name, other in now.items() if name != option}
            tried |= {} if one is None else {option: one}
            found = rank(plan.choosing(tuple(tried.values())))
            level, amount = least
            if found[0] < level or (
                found[0] == level and found[1] < amount - _GAIN * abs(amount)
            ):
                now, least = tried, found
    return tuple(now.values())
