"""Optimizer states that leave a GPU that is full."""

from __future__ import annotations

from dataclasses import replace

from planner.estimate import mechanisms
from planner.estimate.memory.held import outside, reserved_of
from planner.estimate.memory.timeline import StageMemory
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.mechanism import Room
from planner.specs.plan import Plan


def _beside(found: StageMemory, slack: float) -> Array:
    """Reserved memory without the states, which cannot be paged out."""
    nothing = 0.0 * found.phases[0]["optimizer"]
    others = [{**phase, "optimizer": nothing} for phase in found.phases]
    return reserved_of(others, found.segments, slack)[0]


def evicted(plan: Plan, c: Columns, found: StageMemory, slack: float) -> Array | None:
    """Bytes of states that leave at the fullest moment of the step; None: none ever does."""

    def room() -> Room:
        taken = _beside(found, slack) + sum(outside(plan, c))
        return Room(found.phases[0]["optimizer"], plan.usable_bytes - taken)

    return mechanisms.evicted(plan, c, room)


def without_evicted(
    plan: Plan, c: Columns, found: StageMemory, slack: float, least: float
) -> StageMemory:
    """The stage with what is left of its states on the GPU. slack, least: share that the allocator
    reserves beyond what comes and goes, and has to."""
    away = evicted(plan, c, found, slack)
    if away is None:
        return found
    phases = [{**phase, "optimizer": phase["optimizer"] - away} for phase in found.phases]
    return replace(found, phases=phases, host=found.host + away, firm=_beside(found, least))
