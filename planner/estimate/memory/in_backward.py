"""Gradients of weights that are updated inside backward: a weight's is freed when it has been used.

torch registers the update with `Tensor.register_post_accumulate_grad_hook`. On one GPU it runs
tensor by tensor. Where gradients are sharded it runs when a layer's are reduced, and their buffer
lives until the last of them has been used (fully_shard, `foreach_reduce`).
"""

from __future__ import annotations

import numpy as np

from planner.estimate import sync
from planner.estimate.gradients import tensors
from planner.estimate.states import RankParameters
from planner.formulas import memory
from planner.formulas.data_parallel import shard_count
from planner.ledger import Array, Ledger, total
from planner.specs.columns import Columns
from planner.specs.plan import Plan

_ZERO_2 = 2.0  # the first ZeRO stage that shards gradients


def largest_tensor(plan: Plan, c: Columns, p: RankParameters) -> Array:
    """Elements on this rank of the largest weight of a layer; experts of a layer are one tensor."""
    fusion = plan.stack.fusion
    every = tensors(plan.model, fusion.joint_qkv, fusion.joint_gate)
    dense = [one.elements for one in every if one.layer is not None and one.name != "moe/experts"]
    moe = plan.model.routed
    experts = p.most_experts / (moe.inputs + 1 if moe else 1)
    return np.maximum(float(max(dense)) / c.tp, experts)


def alive(
    plan: Plan, c: Columns, p: RankParameters, gradient: float, temporary: float
) -> tuple[Ledger, Ledger, Ledger]:
    """What is alive while a layer's weights, the head and the embedding are updated: gradients, and
    temporaries of the optimizer for one tensor.

    gradient, temporary: bytes per element. A tied embedding's gradient waits from the loss on for
    what the embedding adds to it.
    """
    shard = shard_count(c.zero, _ZERO_2, c.shards)
    tensor, words = largest_tensor(plan, c, p), p.words
    ends = total(p.last)
    together = np.where(shard > 1, p.per_layer(), tensor)
    waits = words if plan.model.tied_embeddings else 0.0 * words

    def of(elements: Array, one: Array, beside: Array) -> Ledger:
        return {
            "gradients": memory.updated_gradient_bytes(elements, beside, gradient, shard),
            "optimizer_temporaries": memory.updated_gradient_bytes(one, 0.0, temporary, shard),
        }

    head = p.last.get("head/logits", 0.0 * words)
    return (
        of(together, tensor, waits),
        of(np.where(shard > 1, ends, head), head, waits),
        of(words, words, 0.0 * words),
    )


def phases(
    plan: Plan, found: list[Ledger], at: tuple[Ledger, Ledger, Ledger], product: Array
) -> list[Ledger]:
    """The phases of `timeline` with gradients that do not outlive their weight's update.

    product: bytes of the gradient that a GEMM gives, part of `backward_temporaries`: where the
    optimizer reads it as it is, it counts once.
    """
    layer, head, embedding = at
    load, forward, loss, backward, end, reduction, step = found
    nothing = 0.0 * product
    none = {"gradients": nothing, "optimizer_temporaries": nothing}
    once = np.minimum(product, layer["gradients"]) if _read_as_given(plan) else nothing
    again = {**layer, "backward_temporaries": backward["backward_temporaries"] - once}
    inside, at_head = backward | again, forward | head
    fuller = total(at_head) > total(inside)
    return [
        load | none,
        forward | none,
        loss | none,
        {name: np.where(fuller, at_head[name], leaf) for name, leaf in inside.items()},
        end | again,
        reduction | embedding,
        step | none,
    ]


def _read_as_given(plan: Plan) -> bool:
    """Whether the optimizer reads the gradient in the type in which a GEMM gives it."""
    state = plan.stack.state
    return plan.training.state_precision == "bf16" or state.gradient <= sync.compute_bytes(plan)
