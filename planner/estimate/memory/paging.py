"""Optimizer states in memory that the driver pages: they stay on the GPU as far as there is room
beside everything else, and the rest lies in host memory until the update."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.estimate.memory.held import outside, reserved_of
from planner.estimate.memory.timeline import StageMemory
from planner.formulas.optimizers import OPTIMIZERS
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.plan import Plan


def _beside(found: StageMemory, slack: float) -> Array:
    """Reserved memory without the states, which cannot be paged out."""
    nothing = 0.0 * found.phases[0]["optimizer"]
    others = [{**phase, "optimizer": nothing} for phase in found.phases]
    return reserved_of(others, found.segments, slack)[0]


def leaving(plan: Plan, c: Columns, found: StageMemory, slack: float) -> Array:
    """Bytes of states for which the fullest moment of the step has no room."""
    states = found.phases[0]["optimizer"]
    taken = _beside(found, slack) + sum(outside(plan, c))
    return np.clip(states - (plan.usable_bytes - taken), 0.0, states)


def paged(plan: Plan, c: Columns, found: StageMemory, slack: float, least: float) -> StageMemory:
    """The stage with what is left of its states on the GPU; the same where they are not paged.
    slack, least: share that the allocator reserves beyond what comes and goes, and has to."""
    if not OPTIMIZERS[plan.training.optimizer].paged:
        return found
    away = leaving(plan, c, found, slack)
    phases = [{**phase, "optimizer": phase["optimizer"] - away} for phase in found.phases]
    return replace(found, phases=phases, host=found.host + away, firm=_beside(found, least))
