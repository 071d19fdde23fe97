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


def _beside(stage: StageMemory, slack: float) -> Array:
    """Reserved memory without the states, which cannot be paged out."""
    nothing = 0.0 * stage.phases[0]["optimizer"]
    others = [{**phase, "optimizer": nothing} for phase in stage.phases]
    return reserved_of(others, stage.segments, slack)[0]


def evicted(plan: Plan, c: Columns, stage: StageMemory, slack: float) -> Array | None:
    """Bytes of states that leave at the fullest moment of the step; None: none ever does."""

    def room() -> Room:
        taken = _beside(stage, slack) + sum(outside(plan, c))
        return Room(stage.phases[0]["optimizer"], plan.usable_bytes - taken)

    return mechanisms.evicted(plan, c, room)


def without_evicted(
    plan: Plan, c: Columns, stage: StageMemory, slack: float, least: float
) -> StageMemory:
    """The stage after eviction of optimizer states. slack: share that the allocator reserves beyond
    transient memory; least: the share that it cannot avoid."""
    away = evicted(plan, c, stage, slack)
    if away is None:
        return stage
    phases = [{**phase, "optimizer": phase["optimizer"] - away} for phase in stage.phases]
    return replace(stage, phases=phases, host=stage.host + away, firm=_beside(stage, least))
