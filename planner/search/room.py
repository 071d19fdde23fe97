"""How much memory a layout that is taken leaves free: as much as the request asks for, by default
what a 95 % chance to fit needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.estimate import Estimates, Outline
from planner.evidence import memory as evidence
from planner.ledger import Array


@dataclass(frozen=True)
class Room:
    """Criteria among layouts that fit, beside their cost."""

    enough: Array  # whether each leaves the room that is wanted
    # of the layouts with these positions: how likely each is to fit, or where the request says how
    # much room is enough the share of memory it leaves
    how_much: Callable[[Array], Array]
    decides_ties: bool  # by default, more room is better among layouts within a tie


def room(estimates: Estimates | Outline, rows: Array, extra_bytes: Array | float = 0.0) -> Room:
    """The room of rows that fit. extra_bytes: what they need beside their estimate."""
    plan = estimates.plan
    headroom = plan.request.headroom
    device = estimates.memory.device[rows] + extra_bytes
    if headroom is not None:
        free = 1 - device / plan.usable_bytes
        return Room(free >= headroom, lambda at: free[at], decides_ties=False)
    limits, firm = evidence.limits(plan), firm_bytes(estimates)[rows] + extra_bytes
    return Room(
        firm <= limits[_combinations(estimates, rows)],
        lambda at: evidence.fit_chances(plan, _combinations(estimates, rows[at]), firm[at]),
        decides_ties=True,
    )


def fit_chance(estimates: Estimates | Outline, rows: Array) -> Array:
    """Chance that the device memory suffices, of each of these rows."""
    kinds = _combinations(estimates, rows)
    return evidence.fit_chances(estimates.plan, kinds, firm_bytes(estimates)[rows])


def firm_bytes(estimates: Estimates | Outline) -> Array:
    """Device memory of every layout that has to fit: all but what goes where memory ends, states
    that the driver pages and segments that the allocator gives back."""
    memory = estimates.memory
    return memory.device if memory.firm is None else memory.firm


def _combinations(estimates: Estimates | Outline, rows: Array) -> Array:
    if isinstance(estimates, Estimates):
        return evidence.combinations(estimates.table.pick(rows))
    space = estimates.space
    of_row = evidence.row_number(space.outer["zero"], space.outer["pp"])
    of_option = evidence.option_number(space.inner["recompute"], space.inner["offload"])
    out: Array = of_row[space.row[rows]] + of_option[space.option[rows]]
    return out


def together(rooms: Sequence[Room]) -> Room:
    """The room of several layouts, each known by itself: of a search over several plans."""
    return Room(
        np.concatenate([each.enough for each in rooms]),
        lambda at: np.array([float(rooms[i].how_much(np.array([0]))[0]) for i in at]),
        all(each.decides_ties for each in rooms),
    )
