"""How ranks share out experts: expert x expert-tensor ranks hold them, the rest are copies."""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula
from planner.specs.columns import Columns
from planner.specs.plan import Plan


def tensor_of(plan: Plan, tp: Array) -> Array:
    """Ranks that split every expert: as asked, else one, or those of tensor parallelism, as the
    stack does it (Megatron-LM, parallel_state: expert_tensor_parallel_size)."""
    if plan.training.etp is not None:
        return plan.training.etp + 0.0 * tp
    return 1.0 * tp if plan.stack.experts.tensor == "as dense" else 1.0 + 0.0 * tp


@formula(
    unit="tokens",
    equation="T e/t; T max(e/t, 1) where every tensor rank has all tokens",
    source="own derivation; MoE parallel folding: arXiv 2504.14960",
)
def gathered_tokens(tokens: Array, tp: Array, etp: Array, sequence_parallel: Array) -> Array:
    """Tokens of a micro-batch that a group of expert-tensor ranks works on, before each goes to
    several experts.

    Under sequence parallelism every tensor rank sends its share T/t, else all send the same T.
    """
    share = etp / tp
    return tokens * np.where(sequence_parallel, share, np.maximum(share, 1.0))


def ranks(c: Columns) -> Array:
    """Ranks of one pipeline stage: experts and their copies are shared out over all of them."""
    return c.tp * c.replicas


def replicas(plan: Plan, c: Columns) -> Array:
    """Ranks with the same routed experts, or the same part of them: expert data parallelism."""
    return np.maximum(ranks(c) / (c.ep * tensor_of(plan, c.tp)), 1.0)
