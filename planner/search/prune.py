"""Rows of a space that cannot hold a layout that is wanted, left out before they are evaluated.

A row (degrees, micro-batch, schedule, ...) takes at least as long as with nothing recomputed or
offloaded, and at least as long as its micro-batches in the slowest stage. Rows are evaluated in
the order of these bounds; once the wanted layouts are found, a row whose bound is above them is
excluded by proof. What is left has the same best layouts as the whole space (tests/test_prune.py
compares them).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from planner import schedules
from planner.estimate import Outline, OutlineTime, fit, outline
from planner.estimate.bound import least_s
from planner.estimate.factored import Space
from planner.estimate.memory import Need
from planner.estimate.step import step_time
from planner.estimate.ties import TIE
from planner.ledger import Array
from planner.search.choose import ranked, timed
from planner.search.room import room
from planner.specs.layout import SCHEDULES
from planner.specs.plan import Plan

_FEW = 16384  # layouts that are evaluated as they are
_FIRST = 4096  # layouts of the first block; each further one has eight times as many
_REFINED = 4096  # rows whose bound is refined at once, at least
_PLAIN = 8192  # rows up to which plain columns are faster than factored ones
_ROUNDING = 1e-9  # relative, of a bound against the time it bounds
_SIMULATED = [i for i, name in enumerate(SCHEDULES) if schedules.is_simulated(name)]
_NEEDED = tuple(field.name for field in fields(Need))
# layouts within a tie of the best are decided by other things than time, at every place of a list
SLACK = (1 + TIE) ** 2 * (1 + _ROUNDING)


@dataclass(frozen=True)
class Pruned:
    """The layouts of a space that were evaluated: all that can be among the wanted ones."""

    estimates: Outline | None  # None: none can be among the wanted ones
    rows: Array  # of every row of their space, its position in the space that was searched
    excluded: int  # layouts that were left out


def pruned(
    plan: Plan,
    space: Space,
    count: int = 1,
    groups: Array | None = None,
    most: Array | float = np.inf,
    near: float = 0.0,
) -> Pruned:
    """Evaluate what can be among the `count` fastest layouts that fit with enough room of each
    group.

    groups: a number for every row of the space; by default all are one group. most: seconds beyond
    which no layout of a group is wanted, where one is. near: layouts that are
    slower than the wanted ones by less than this share are evaluated, too.
    """
    fast = _fastest_option(space)
    if fast is None or (space.count <= _FEW and np.all(np.isinf(most))):
        return Pruned(outline(plan, space), np.arange(space.rows), 0)
    groups = np.zeros(space.rows, dtype=np.intp) if groups is None else groups
    search = _Search(plan, space, fast, count, groups, near)
    search.limit[:] = most * (1 + _ROUNDING)
    return search.run()


def _fastest_option(space: Space) -> int | None:
    """The option that is never slower than another, of which a row's time is a bound whether the
    row has it or not: nothing recomputed or offloaded; None where no row has it."""
    nothing = (space.inner["recompute"] == 0) & (space.inner["offload"] == 0)
    if not nothing.any():
        return 0 if len(nothing) == 1 else None
    return int(np.flatnonzero(nothing)[0])


def least_of_rows(plan: Plan, space: Space, rows: Array) -> Array:
    """A bound of the seconds of these rows with the option of their space that repeats least."""
    bare = _bare(space, rows, least_repeated(space))
    (least,) = bare.values(least_s(plan, bare.columns()))
    return least


def least_repeated(space: Space) -> int:
    """The option of a space that repeats and offloads least."""
    return int(np.lexsort((space.inner["recompute"], space.inner["offload"]))[0])


def _bare(space: Space, rows: Array, option: int) -> Space:
    """These rows with a single option."""
    outer = {name: column[rows] for name, column in space.outer.items()}
    inner = {name: column[[option]] for name, column in space.inner.items()}
    first = np.ones((1, 1), dtype=bool)
    return Space(outer, inner, first, np.zeros(len(rows), dtype=np.intp), rows)


class _Search:
    """One search. What is known of rows is refined in place: their bounds, which were evaluated,
    and the limit of each group."""

    def __init__(
        self, plan: Plan, space: Space, fast: int, count: int, groups: Array, near: float
    ) -> None:
        self.plan, self.space, self.count, self.groups = plan, space, count, groups
        self.fast, self.near, self.slack = fast, near, SLACK * (1 + near)
        self.done = np.zeros(space.rows, dtype=bool)
        self.limit = np.full(int(groups.max()) + 1, np.inf)
        bare = _bare(space, np.arange(space.rows), fast)
        (self.least,) = bare.values(least_s(plan, bare.columns()))
        self.refined = np.zeros(space.rows, dtype=bool)
        # of which idle time is simulated
        self.simulated = np.isin(space.outer["schedule"], _SIMULATED) & (space.outer["pp"] > 1)
        self.best: dict[int, Array] = {}  # seconds of the best rows of each group so far
        self.blocks: list[tuple[Array, Outline]] = []  # rows and what was evaluated of them

    def run(self) -> Pruned:
        budget = _FIRST
        while len(rows := self._open()):
            rows = np.sort(self._next(rows, budget))
            if not len(rows):
                continue
            result = outline(self.plan, _part(self.space, rows))
            if self.near:  # those that do not fit are looked at, too
                _ = result.time
            self.done[rows] = True
            self._learn(result, rows)
            self.blocks.append((rows, result))
            budget *= 8
        if not self.blocks:
            return Pruned(None, np.zeros(0, dtype=np.intp), self.space.count)
        if len(self.blocks) != 1:
            rows = np.flatnonzero(self.done & (self.least <= self.limit[self.groups]))
            result = self._joined(rows)
        else:
            ((rows, result),) = self.blocks
        return Pruned(result, rows[result.space.source], self.space.count - result.space.count)

    def _joined(self, rows: Array) -> Outline:
        """The evaluated layouts of these rows as one outline."""
        space = _part(self.space, rows)
        place = np.full(self.space.rows, -1)
        place[rows[space.source]] = np.arange(space.rows)
        first = np.cumsum(space.counts) - space.counts
        parts = []
        for block, result in self.blocks:
            row = block[result.space.source]  # of the space that is searched
            of_row = result.space.row
            starts = np.cumsum(result.space.counts) - result.space.counts
            kept = np.flatnonzero(place[row[of_row]] >= 0)
            at = of_row[kept]
            parts.append((result, kept, first[place[row[at]]] + kept - starts[at]))

        def values(figure: Callable[[Outline], Any]) -> Any:
            if figure(parts[0][0]) is None:
                return None
            out = np.empty(space.count)
            for result, kept, position in parts:
                out[position] = np.broadcast_to(figure(result), result.fits.shape)[kept]
            return out

        need = Need(*(values(operator.attrgetter(f"memory.{name}")) for name in _NEEDED))
        times = (
            values(lambda result: result.time.seconds),
            values(lambda result: result.time.components["recompute"]),
        )
        known = OutlineTime(times[0], {"recompute": times[1]})
        return Outline(self.plan, space, need, *fit(self.plan, need), timed=known)

    def _open(self) -> Array:
        """Rows that may hold a wanted layout and are not evaluated, by their bounds."""
        rows = np.flatnonzero(~self.done & (self.least <= self.limit[self.groups]))
        ahead: Array = rows[np.argsort(self.least[rows], kind="stable")]
        return ahead

    def _next(self, rows: Array, budget: int) -> Array:
        """The first of these rows whose layouts a block has room for, by refined bounds."""
        rows = rows[: max(_REFINED, budget // 8)]
        rough = rows[~self.refined[rows]]
        self.refined[rough] = True
        if np.isfinite(self.limit).any():
            self._raise(rough[self.simulated[rough]], simulated=False)
            rough = rough[self.least[rough] <= self.limit[self.groups[rough]]]
        self._raise(rough)
        rows = rows[self.least[rows] <= self.limit[self.groups[rows]]]
        rows = rows[np.argsort(self.least[rows], kind="stable")]
        return rows[: max(1, int(np.searchsorted(np.cumsum(self.space.counts[rows]), budget)))]

    def _raise(self, rows: Array, *, simulated: bool = True) -> None:
        """Raise the bounds of rows to their seconds with the fastest option. simulated: see
        `step_time`."""
        if not len(rows):
            return
        bare = _bare(self.space, rows, self.fast)
        if len(rows) <= _PLAIN:
            table = bare.flat()
            seconds = step_time(self.plan, table, sums=True, simulated=simulated).seconds
        else:
            time = step_time(self.plan, bare.columns(), simulated=simulated)
            (seconds,) = bare.values(time.seconds)
        self.least[rows] = np.maximum(self.least[rows], seconds)

    def _learn(self, block: Outline, rows: Array) -> None:
        """Lower the limits by what a block of rows holds."""
        of_row = self.groups[rows][block.space.source]
        of_layout = of_row[block.space.row]
        for group in np.unique(of_row):
            best = ranked(block, self.count, of_layout == group)
            if not len(best):
                continue
            sure = best[room(block, best).enough]
            seconds = np.concatenate([self.best.get(group, []), timed(block).seconds[sure]])
            self.best[group] = seconds = np.sort(seconds)[: self.count]
            if len(seconds) == self.count:
                self.limit[group] = seconds[-1] * self.slack


def _part(space: Space, rows: Array) -> Space:
    """Some rows of a space, which are ascending."""
    outer = {name: column[rows] for name, column in space.outer.items()}
    return Space.of(outer, space.inner, space.options, space.pattern[rows])
