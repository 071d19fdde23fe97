"""The walk over the active mechanisms of a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from planner.ledger import Array, Ledger, merge
from planner.specs.mechanism import Codes, Gradients, Sharded, Stage, Step
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


def coded(plan: Plan, what: Literal["weights", "gradients"]) -> Codes | None:
    """How weights are gathered or gradients are reduced in codes; None: as they are."""
    every = (mechanism.coded(what) for mechanism in plan.mechanisms)
    return next((codes for codes in every if codes is not None), None)


def gathered_again(
    plan: Plan, layer: Sharded, all_gather_s: Callable[[Array, Array], Array]
) -> Array | None:
    """Seconds in which backward gathers a layer from nearby copies; None without them."""
    every = (mechanism.gathered_again(layer, all_gather_s) for mechanism in plan.mechanisms)
    return next((seconds for seconds in every if seconds is not None), None)


def gradient_passes(plan: Plan, usual: float) -> float:
    """Passes of a step over gradients."""
    every = (mechanism.gradient_passes() for mechanism in plan.mechanisms)
    return next((passes for passes in every if passes is not None), usual)


def kept_load(plan: Plan) -> float | None:
    """Load of a rank's experts, in means, that what they keep has room for; None: as usual."""
    every = (mechanism.kept_load() for mechanism in plan.mechanisms)
    return next((load for load in every if load is not None), None)


def freed(
    plan: Plan, phases: list[Ledger], gradients: Callable[[], Gradients]
) -> list[Ledger] | None:
    """Phases of a stage whose gradients are freed when they have been used; None: they are not."""
    every = (mechanism.freed(phases, gradients()) for mechanism in plan.mechanisms)
    return next((changed for changed in every if changed is not None), None)


def beside_cpu_update(plan: Plan, backward: Array, components: Ledger) -> Array:
    """Seconds behind which an update on the CPU hides."""
    every = (each.beside_cpu_update(backward, components) for each in plan.mechanisms)
    return sum(every, start=0.0)


def after_update(plan: Plan, step: Step) -> Ledger:
    """Seconds that each adds once the weights are updated."""
    return merge(*(mechanism.after_update(step) for mechanism in plan.mechanisms))
