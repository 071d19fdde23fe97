"""Choosing among evaluated layouts: the best, the best few, and the front that no other layout
beats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import numpy as np

from planner.estimate import Estimates, Outline, OutlineTime
from planner.estimate.run import busy_s, step_energy_j
from planner.estimate.step import StepTime
from planner.estimate.ties import TIE, fastest
from planner.formulas.experts import tensor_of
from planner.ledger import Array
from planner.search.room import Room, room
from planner.search.space import INNER
from planner.specs.columns import unique_rows
from planner.specs.options import Objective
from planner.specs.plan import Plan

# at a fixed number of GPUs money and tokens per dollar are the step time times a constant: they
# have one order
_BY_MEMORY: tuple[str, ...] = ("memory",)
assert set(_BY_MEMORY) < set(get_args(Objective))


ENOUGH, LITTLE, NONE = 0, 1, 2  # levels of a choice, the best first
# level and amount of a choice: of several the least is the best
Rank = tuple[float, float]


@dataclass(frozen=True)
class Choice:
    """The layout to take in one plan."""

    row: int
    # (ENOUGH room, LITTLE where it is expected to fit all the same, or NONE; seconds, chance not to
    # fit or bytes): of several plans the least
    rank: Rank

    @property
    def fits(self) -> bool:
        return self.rank[0] != NONE


def choice(estimates: Estimates | Outline, rows: Array | None = None) -> Choice:
    """The layout to take of these rows (all by default): the fastest with enough room, ties by
    estimate.ties; where none has, the likeliest to fit; where none fits, the one that needs the
    least memory."""
    rows = np.arange(len(estimates.fits)) if rows is None else rows
    fitting = rows[estimates.fits[rows]]
    device = estimates.memory.device
    if not len(fitting):
        row = int(rows[device[rows].argmin()])
        return Choice(row, (NONE, float(device[row])))
    row = int(_first(estimates, fitting, 1, "time")[0])
    free = room(estimates, np.array([row]))
    if free.enough[0]:
        return Choice(row, (ENOUGH, float(timed(estimates).seconds[row])))
    return Choice(row, (LITTLE, -float(free.how_much(np.array([0]))[0])))


def fastest_that_fits(estimates: Estimates | Outline) -> int | None:
    """Row of the fastest layout that is expected to fit, however little room it leaves; ties by
    estimate.ties."""
    fitting = np.flatnonzero(estimates.fits)
    if not len(fitting):
        return None
    time = timed(estimates)
    seconds, repeated = time.seconds[fitting], time.components["recompute"][fitting]
    return int(fitting[fastest(seconds, repeated, estimates.memory.device[fitting])])


def timed(estimates: Estimates | Outline) -> StepTime | OutlineTime:
    """Seconds of the layouts that fit; may be infinite for the others."""
    return estimates.time_where_fits if isinstance(estimates, Outline) else estimates.time


def of_all(rank: Rank, plan: Plan) -> Rank:
    """The rank of a plan's layout among plans with other global batches: seconds per sequence if it
    has enough room."""
    level, amount = rank
    return level, amount / plan.training.global_batch if level == ENOUGH else amount


def spent(estimates: Estimates | Outline, objective: Objective) -> Array:
    """The cost of layouts that fit which an objective minimises: energy per step, else step time
    (memory apart, whose order needs no cost)."""
    if objective != "energy":
        return timed(estimates).seconds
    if isinstance(estimates, Outline):
        return estimates.joules
    return step_energy_j(estimates.plan, estimates.time.seconds, busy_s(estimates.time))


def best(
    estimates: Estimates | Outline, among: Array | None = None, objective: Objective = "time"
) -> int | None:
    """Row of the best layout that fits (among the rows marked), None if none fits. Ties:
    estimate.ties."""
    result = ranked(estimates, 1, among, objective)
    return int(result[0]) if len(result) else None


def smallest(estimates: Estimates | Outline, among: Array | None = None) -> int:
    """Row that needs the least memory (among the rows marked): the nearest to fitting."""
    peak = estimates.memory.device
    return int((peak if among is None else np.where(among, peak, np.inf)).argmin())


def ranked(
    estimates: Estimates | Outline,
    count: int,
    among: Array | None = None,
    objective: Objective = "time",
) -> Array:
    """Rows of the best layouts that fit, best first: those with enough room, then the others by how
    likely they fit. Layouts that differ only in recompute or offloading are listed once, by the
    best of them."""
    usable = np.flatnonzero(estimates.fits if among is None else estimates.fits & among)
    return _first(estimates, usable, count, objective) if len(usable) else usable


def _first(estimates: Estimates | Outline, rows: Array, count: int, objective: Objective) -> Array:
    """The best of rows that fit, best first."""
    known = room(estimates, rows)
    if count == 1 and objective not in _BY_MEMORY and known.enough.any():
        # nothing but ties of the fastest with enough room can be taken
        rows = rows[known.enough]
        cost = spent(estimates, objective)[rows]
        rows = rows[cost <= cost.min() * (1 + TIE)]
        known = room(estimates, rows)
    cost, repeated = (
        spent(estimates, objective)[rows],
        timed(estimates).components["recompute"][rows],
    )
    same = _same(estimates)[rows] if count > 1 else np.zeros(len(rows))
    device, across = estimates.memory.device[rows], spanning(estimates, rows)
    candidates = Candidates(cost, repeated, device, same, across, known)
    return rows[order(candidates, count, objective)]


def spanning(estimates: Estimates | Outline, rows: Array) -> Array:
    """How many of the groups that communicate in every layer (tensor, expert and context
    parallelism) span nodes, or NVLink domains, in each of these layouts."""
    plan = estimates.plan
    if isinstance(estimates, Outline):
        outer, at = estimates.space.outer, estimates.space.row[rows]
        tp, cp, ep = (outer[name][at] for name in ("tp", "cp", "ep"))
    else:
        tp, cp, ep = (getattr(estimates.table, name)[rows] for name in ("tp", "cp", "ep"))
    domain = plan.cluster.nvlink_domain
    total: Array = sum(
        1.0 * ((size > 1) & (size * stride(plan, name, tp) > domain))
        for name, size in (("tp", tp), ("cp", cp), ("ep", ep))
    )
    return total


def stride(plan: Plan, group: str, tp: Array) -> Array:
    """Distance in ranks between neighbours of a group: 1 for tensor parallelism, tp for context
    parallelism, the degree of expert tensor parallelism for experts."""
    if group == "tp":
        return 1.0
    return tensor_of(plan, tp) if group == "ep" else tp


def _same(estimates: Estimates | Outline) -> Array:
    """A number per row, equal where only recompute or offloading differ."""
    if isinstance(estimates, Outline):
        return estimates.space.row
    columns = estimates.table.named()
    return unique_rows({name: columns[name] for name in columns if name not in INNER})[1]


@dataclass(frozen=True)
class Candidates:
    """Layouts to put in order, as columns."""

    cost: Array  # see `spent`
    repeated_s: Array
    device_bytes: Array
    same: Array  # a number, equal where only one is to be listed
    spanning: Array  # see `spanning`
    room: Room | None = None  # None: nothing is known of it

    def at(self, positions: Array) -> Candidates:
        """Some of them; of their room nothing is known."""
        columns = (self.cost, self.repeated_s, self.device_bytes, self.same, self.spanning)
        return Candidates(*(column[positions] for column in columns))


def order(among: Candidates, count: int, objective: Objective) -> Array:
    """Positions of the best, best first; each value of `same` once.

    By memory, the smallest first. By time and by energy, see `_by_cost`; layouts with too little
    room come after all others, the likeliest to fit first.
    """
    same, known = among.same, among.room
    if objective in _BY_MEMORY:
        return _first_of_each(np.lexsort((among.cost, among.device_bytes)), same)[:count]
    if known is None:
        return _by_cost(among, count)
    roomy = np.flatnonzero(known.enough)
    chances = (lambda at: known.how_much(roomy[at])) if known.decides_ties else None
    result = roomy[_by_cost(among.at(roomy), count, chances)]
    if len(result) == count:
        return result
    rest = np.flatnonzero(~known.enough & ~np.isin(same, same[result]))
    likeliest = rest[np.lexsort((among.cost[rest], -known.how_much(rest)))]
    return np.concatenate([result, _first_of_each(likeliest, same)])[:count]


def _first_of_each(positions: Array, same: Array) -> Array:
    """These positions, each value of `same` once."""
    _, first = np.unique(same[positions], return_index=True)
    out: Array = positions[np.sort(first)]
    return out


def _by_cost(
    among: Candidates, count: int, chances: Callable[[Array], Array] | None = None
) -> Array:
    """Positions of the cheapest, each value of `same` once. Each place is decided as the first is:
    of those within a tie of the least left by estimate.ties, with these chances to fit."""
    cost, same = among.cost, among.same
    by_cost = np.argsort(cost, kind="stable")
    left = np.ones(len(by_cost), dtype=bool)
    ascending = cost[by_cost]
    out: list[int] = []
    start = 0
    while len(out) < count and start < len(by_cost):
        if not left[start]:
            start += int(np.argmax(left[start:])) if left[start:].any() else len(by_cost)
            continue
        end = int(np.searchsorted(ascending, ascending[start] * (1 + TIE), side="right"))
        tied = by_cost[start:end][left[start:end]]
        chance = None if chances is None else chances(tied)
        row = int(
            tied[
                fastest(
                    cost[tied],
                    among.repeated_s[tied],
                    among.device_bytes[tied],
                    chance,
                    among.spanning[tied],
                )
            ]
        )
        out.append(row)
        left &= same[by_cost] != same[row]
    return np.array(out, dtype=np.intp)


def pareto(seconds: Array, peak_bytes: Array) -> Array:
    """Rows that no other row beats in both time and memory, fastest first."""
    order = np.lexsort((peak_bytes, seconds))
    lowest = np.minimum.accumulate(peak_bytes[order])
    keep = (
        np.concatenate([[True], lowest[1:] < lowest[:-1]])
        if len(order)
        else np.zeros(0, dtype=bool)
    )
    return order[keep]
