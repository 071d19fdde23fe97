"""Frozen weights held by a stage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.estimate import quantised
from planner.estimate.memory import low_precision
from planner.estimate.stages import StageSplit, stage_split
from planner.estimate.state_types import frozen_bytes
from planner.estimate.states import RankParameters, rank_parameters
from planner.estimate.trained import Weights, trained_split
from planner.formulas import memory
from planner.ledger import Array, total
from planner.specs.columns import Columns
from planner.specs.names import SHARDS_PARAMETERS
from planner.specs.plan import Plan

_FP32_BYTES = 4.0
GATHERED_LAYERS = 2.0  # a layer in use and the next one, gathered ahead


def held_bytes(
    plan: Plan, c: Columns, weights: Weights, split: StageSplit, cuts: tuple[Array, Array]
) -> Array:
    """Bytes of the frozen weights of a stage. Adapters are in addition to all weights, also to an
    embedding that is trained, of which PEFT keeps the original (ModulesToSaveWrapper).

    cuts: ranks that share the weights, and ranks that share routed experts.
    """
    every, first, last = weights.every, split.first, split.last
    shared, experts = every.of_stage(split, first, last), every.experts_of_stage(split)
    if plan.training.adapter is None:
        trained, layers_trained = weights.trained, trained_split(plan, split)
        shared = shared - trained.of_stage(layers_trained, first, last)
        experts = experts - trained.experts_of_stage(layers_trained)
    each, (ranks, expert_ranks), upcast = frozen_bytes(plan), cuts, plan.base_upcast
    layers = every.of_stage(split, 0.0 * first, 0.0 * last) * (plan.training.adapter is not None)
    beside = low_precision.frozen_bytes(plan, each) if upcast == "none" else _FP32_BYTES
    ends = _FP32_BYTES if upcast == "all" else each
    of_layers, of_experts = quantised.element_bytes(plan, c, every, beside)
    return (
        memory.state_bytes(shared - layers, ends, ranks)
        + memory.state_bytes(layers, of_layers, ranks)
        + memory.state_bytes(experts, of_experts, expert_ranks)
        + _beyond_shards(plan, c, every, split, cuts)
    )


def buffers_bytes(
    plan: Plan, c: Columns, every: RankParameters, split: StageSplit
) -> tuple[Array, Array]:
    """Bytes of codes of a stage that every rank keeps whole, and of routed experts."""
    if not quantised.stays_whole(plan):
        return 0.0 * c.tp, 0.0 * c.tp
    dense, routed = quantised.codes(plan, c)
    layers = every.of_stage(split, 0.0 * split.first, 0.0 * split.last)
    return (
        layers * dense / np.maximum(total(every.layer), 1.0),
        every.experts_of_stage(split) * routed / np.maximum(every.experts, 1.0),
    )


def _beyond_shards(
    plan: Plan, c: Columns, every: RankParameters, split: StageSplit, cuts: tuple[Array, Array]
) -> Array:
    """Bytes that buffers take beside the shard that they would be as parameters."""
    each = zip(buffers_bytes(plan, c, every, split), cuts, strict=True)
    return sum((codes * (1.0 - 1.0 / ranks) for codes, ranks in each), 0.0 * c.tp)


def holds_another(plan: Plan) -> bool:
    """Whether a reference or a second model is held beside the model that is trained."""
    return plan.training.reference == "held"


def second_bytes(plan: Plan, c: Columns, cuts: tuple[Array, Array]) -> tuple[Array, Array]:
    """Bytes of the weights of a second model on the GPUs of the step, which no pipeline cuts, and
    of those that its pass gathers where parameters are sharded, or makes of their codes."""
    second = plan.second
    if second is None or second.plan is None or second.place != "here":
        return 0.0 * c.tp, 0.0 * c.tp
    frozen: Plan = second.plan
    every, whole = (
        rank_parameters(frozen, c),
        replace(c, pp=1.0 + 0.0 * c.pp, vpp=1.0 + 0.0 * c.vpp),
    )
    each, split = frozen_bytes(frozen), stage_split(frozen, whole, 0.0 * c.pp)
    of_layers, of_experts = quantised.element_bytes(frozen, c, every, each)
    layers = memory.state_bytes(every.of_stage(split, 0.0 * c.pp, 0.0 * c.pp), 1.0, cuts[0])
    experts = memory.state_bytes(every.experts_of_stage(split), 1.0, cuts[1])
    saved = layers * (each - of_layers) + experts * (each - of_experts)
    ends, layer = total(every.first) + total(every.last), each * every.per_layer()
    layer = layer - quantised.saved_per_layer(frozen, c, every, each)
    gathered = np.where(c.zero >= SHARDS_PARAMETERS, each * ends + GATHERED_LAYERS * layer, 0.0)
    saved = saved - _beyond_shards(frozen, c, every, split, cuts)
    return whole_bytes(every, split, each, cuts) - saved, gathered + quantised.made_bytes(frozen, c)


def whole_bytes(
    every: RankParameters, split: StageSplit, each: float, cuts: tuple[Array, Array]
) -> Array:
    """Bytes of all weights of a stage, at `each` bytes per element. cuts: ranks that shard the
    weights, and ranks that shard routed experts."""
    shared, experts = every.of_stage(split, split.first, split.last), every.experts_of_stage(split)
    return memory.state_bytes(shared, each, cuts[0]) + memory.state_bytes(experts, each, cuts[1])
