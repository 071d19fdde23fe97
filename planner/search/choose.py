"""Choosing among evaluated layouts: the best, the best few, and the front that no other layout
beats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np

from planner.estimate import Estimates, Outline
from planner.estimate.run import busy_s, step_energy_j
from planner.estimate.ties import TIE, fastest
from planner.ledger import Array
from planner.search.space import INNER
from planner.specs.columns import unique_rows
from planner.specs.options import Objective
from planner.specs.plan import Plan

# at a fixed number of GPUs money and tokens per dollar are the step time times a constant: they
# have one order
_BY_MEMORY: tuple[str, ...] = ("memory",)
assert set(_BY_MEMORY) < set(get_args(Objective))


@dataclass(frozen=True)
class Choice:
    """The layout to take in one plan."""

    row: int
    fits: bool
    rank: tuple[bool, float]  # (does not fit, seconds or else bytes): of several plans the least


def choice(estimates: Estimates | Outline, rows: Array | None = None) -> Choice:
    """The layout to take of these rows (all by default): the fastest that fits, ties by
    estimate.ties; where none fits, the one that needs the least memory."""
    rows = np.arange(len(estimates.fits)) if rows is None else rows
    fitting = rows[estimates.fits[rows]]
    device, seconds = estimates.memory.device, estimates.time.seconds
    if not len(fitting):
        row = int(rows[device[rows].argmin()])
        return Choice(row, False, (True, float(device[row])))
    repeated = estimates.time.components["recompute"]
    row = int(fitting[fastest(seconds[fitting], repeated[fitting], device[fitting])])
    return Choice(row, True, (False, float(seconds[row])))


def of_all(rank: tuple[bool, float], plan: Plan) -> tuple[bool, float]:
    """The rank of a plan's layout among those of plans with other global batches: seconds per
    sequence where it fits."""
    short, amount = rank
    return short, amount if short else amount / plan.training.global_batch


def spent(estimates: Estimates | Outline, objective: Objective) -> Array:
    """The cost an objective minimises: energy per step, else step time (memory apart, whose order
    needs no cost)."""
    if objective != "energy":
        return estimates.time.seconds
    if isinstance(estimates, Outline):
        return estimates.joules
    return step_energy_j(estimates.plan, estimates.time.seconds, busy_s(estimates.time))


def best(
    estimates: Estimates | Outline, among: Array | None = None, objective: Objective = "time"
) -> int | None:
    """Row of the best layout that fits (among the rows marked), None if none fits. Ties:
    estimate.ties."""
    found = ranked(estimates, 1, among, objective)
    return int(found[0]) if len(found) else None


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
    """Rows of the best layouts that fit, best first. Layouts that differ only in recompute or
    offloading are listed once, by the best of them."""
    usable = np.flatnonzero(estimates.fits if among is None else estimates.fits & among)
    if not len(usable):
        return usable
    if count == 1 and objective not in _BY_MEMORY:  # nothing but ties of the fastest can be taken
        cost = spent(estimates, objective)[usable]
        usable = usable[cost <= cost.min() * (1 + TIE)]
    cost, repeated = (
        spent(estimates, objective)[usable],
        estimates.time.components["recompute"][usable],
    )
    same = _same(estimates)[usable] if count > 1 else np.zeros(len(usable))
    return usable[order(cost, repeated, estimates.memory.device[usable], same, count, objective)]


def _same(estimates: Estimates | Outline) -> Array:
    """A number per row, equal where only recompute or offloading differ."""
    if isinstance(estimates, Outline):
        return estimates.space.row
    columns = estimates.table.named()
    return unique_rows({name: columns[name] for name in columns if name not in INNER})[1]


def order(
    cost: Array,
    repeated_s: Array,
    device_bytes: Array,
    same: Array,
    count: int,
    objective: Objective,
) -> Array:
    """Positions of the best, best first; each value of `same` once. cost: see `spent`.

    By time and by energy, each place is decided as the first is: of those within a tie of the least
    left, the one that repeats the least work (estimate.ties); of equals the one that needs less
    memory.
    """
    if objective in _BY_MEMORY:
        found = np.lexsort((cost, device_bytes))
        _, first = np.unique(same[found], return_index=True)
        return found[np.sort(first)[:count]]
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
        row = int(tied[fastest(cost[tied], repeated_s[tied], device_bytes[tied])])
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
