"""Gradients of a stage, for mechanisms that change when they are there."""

from __future__ import annotations

import numpy as np

from planner.estimate import sync
from planner.estimate.gradients import tensors
from planner.estimate.moments import state_ledger
from planner.estimate.state_types import state_of
from planner.estimate.states import RankParameters
from planner.formulas.data_parallel import shard_count
from planner.ledger import Array, total
from planner.specs.columns import Columns
from planner.specs.mechanism import Gradients
from planner.specs.plan import Plan

_ZERO_2 = 2.0  # the first ZeRO stage that shards gradients


def stage_gradients(plan: Plan, c: Columns, p: RankParameters, product: Array) -> Gradients:
    """product: bytes of the gradient that a GEMM gives."""
    state = plan.stack.state
    return Gradients(
        shards=shard_count(c.zero, _ZERO_2, c.shards),
        layer=p.per_layer(),
        tensor=_largest_tensor(plan, c, p),
        head=p.last.get("head/logits", 0.0 * p.words),
        last=total(p.last),
        words=p.words,
        tied=plan.model.tied_embeddings,
        each=state_ledger(plan)["gradients"],
        temporary=state_of(plan).optimizer_temporary,
        product=product,
        as_given=plan.training.state_precision == "bf16"
        or state.gradient <= sync.compute_bytes(plan),
    )


def _largest_tensor(plan: Plan, c: Columns, p: RankParameters) -> Array:
    """Elements on this rank of the largest weight of a layer; experts of a layer are one tensor."""
    fusion = plan.stack.fusion
    every = tensors(plan.model, fusion.joint_qkv, fusion.joint_gate)
    dense = [
        tensor.elements
        for tensor in every
        if tensor.layer is not None and tensor.name != "moe/experts"
    ]
    moe = plan.model.routed
    experts = p.most_experts / (moe.inputs + 1 if moe else 1)
    return np.maximum(float(max(dense)) / c.tp, experts)
