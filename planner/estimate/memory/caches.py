"""Keys and values that a model's own code holds while it trains."""

from __future__ import annotations

from planner.estimate.memory.tokens import tokens_of
from planner.estimate.stages import Repeated
from planner.formulas import memory
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.layers import memory_kinds
from planner.specs.parts import Attention
from planner.specs.plan import Plan


def cached(plan: Plan, c: Columns, again: Repeated) -> Array:
    """KV caches that recomputed layers hold until the loss if the model's code keeps keys and
    values in training: views of the whole fused QKV output, if one matrix makes queries too. Other
    layers keep them for backward anyway."""
    out = 0.0 * c.tp
    if "cache" not in plan.model.holds:
        return out
    tokens, queries = tokens_of(plan, c)[0], float(plan.joint[0])
    for kind, count in zip(memory_kinds(plan.model).kinds, again.kinds, strict=True):
        for part in kind.parts:
            if isinstance(part, Attention):
                width = float(part.head_dim * (queries * part.heads + 2 * part.kv_heads))
                out = out + count * memory.projected_bytes(tokens, width, plan.stream_bytes, c.tp)
    return out
