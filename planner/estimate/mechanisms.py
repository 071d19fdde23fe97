"""The walk over the active mechanisms of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from planner.ledger import Array, Ledger, merge
from planner.specs.mechanism import Stage, Step
from planner.specs.plan import Plan


def with_memory(
    plan: Plan, phases: Sequence[Ledger], host: Array, stage: Stage
) -> tuple[list[Ledger], Array]:
    """Ledgers of the phases of a stage and its bytes in host memory, with what each adds."""
    held = list(phases)
    for mechanism in plan.mechanisms:
        added = mechanism.memory(stage)
        held = [merge(phase, added.leaves) for phase in held]
        host = host + added.host
    return held, host


def after_update(plan: Plan, step: Step) -> Ledger:
    """Seconds that each adds once the weights are updated."""
    return merge(*(mechanism.after_update(step) for mechanism in plan.mechanisms))
