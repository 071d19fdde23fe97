"""Tokens of a micro-batch that a rank has, and the copies of tokens that its experts work on."""

from __future__ import annotations

import numpy as np

from planner.formulas import experts
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.plan import Plan


def tokens_of(plan: Plan, c: Columns) -> tuple[Array, Array]:
    """(tokens of a micro-batch on this rank, those that norms and residuals see under sequence
    parallelism)."""
    tokens = c.tokens(plan.training.seq_len)
    return tokens, tokens / c.sequence_ranks


def routed_tokens(plan: Plan, c: Columns) -> Array:
    """Copies of tokens that routed experts of this rank work on in a micro-batch."""
    moe = plan.model.routed
    if moe is None:
        return 0.0 * c.tp
    tensor = experts.tensor_of(plan, c.tp)
    tokens = experts.gathered_tokens(
        c.tokens(plan.training.seq_len), c.tp, tensor, c.sequence_parallel > 0
    )
    even = moe.per_token * tokens
    # buffers are as large as a capacity says, filled or not, unless pages hold what is filled
    load = plan.stated(lambda each: each.kept_load()) or plan.training.capacity_factor
    if load is None:
        load = experts.load_of(plan, c.ep, np.maximum(moe.experts / c.ep, 1.0), even)
    return load * even
