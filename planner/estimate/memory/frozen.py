"""Weights that are not trained: what a stage holds of them."""

from __future__ import annotations

from planner.estimate import quantised
from planner.estimate.stages import StageSplit
from planner.estimate.state_types import frozen_bytes
from planner.estimate.trained import Weights, trained_split
from planner.formulas import memory
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.plan import Plan

_FP32_BYTES = 4.0


def held_bytes(
    plan: Plan, c: Columns, of: Weights, split: StageSplit, cuts: tuple[Array, Array]
) -> Array:
    """Bytes of the frozen weights of a stage. Adapters stand beside all weights, also beside an
    embedding that is trained, of which PEFT keeps the original (ModulesToSaveWrapper).

    cuts: ranks that share the weights, and those of routed experts.
    """
    every, first, last = of.every, split.first, split.last
    shared, experts = every.of_stage(split, first, last), every.experts_of_stage(split)
    if plan.training.adapter is None:
        trained, held = of.trained, trained_split(plan, split)
        shared = shared - trained.of_stage(held, first, last)
        experts = experts - trained.experts_of_stage(held)
    each, (own, others), upcast = frozen_bytes(plan), cuts, plan.training.base_upcast
    layers = every.of_stage(split, 0.0 * first, 0.0 * last) * (plan.training.adapter is not None)
    beside, ends = (_FP32_BYTES if wide else each for wide in (upcast, upcast == "all"))
    of_layers, of_experts = quantised.element_bytes(plan, c, every, beside)
    return (
        memory.state_bytes(shared - layers, ends, own)
        + memory.state_bytes(layers, of_layers, own)
        + memory.state_bytes(experts, of_experts, others)
    )


def reference_bytes(plan: Plan, of: Weights, split: StageSplit, cuts: tuple[Array, Array]) -> Array:
    """Bytes of a reference that a stage holds beside what it trains: all of its weights again,
    frozen."""
    every, (own, others) = of.every, cuts
    shared, experts = every.of_stage(split, split.first, split.last), every.experts_of_stage(split)
    each = frozen_bytes(plan) if plan.training.reference == "held" else 0.0
    return memory.state_bytes(shared, each, own) + memory.state_bytes(experts, each, others)
