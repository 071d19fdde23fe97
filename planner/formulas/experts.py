"""How ranks share out experts: expert x expert-tensor ranks hold them, the rest are copies."""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula
from planner.specs.columns import Columns
from planner.specs.plan import Plan

# expected largest of n normals as a quantile, and the quantile of a normal in closed form
_MEDIAN, _LAMBDA, _SLOPE = 0.5264, 0.1349, 0.1975


def tensor_of(plan: Plan, tp: Array) -> Array:
    """Ranks that split every expert: as requested, else 1 or the tensor-parallel degree, as the
    stack does (Megatron-LM, parallel_state: expert_tensor_parallel_size)."""
    if plan.training.etp is not None:
        return plan.training.etp + 0.0 * tp
    return 1.0 * tp if plan.stack.experts.tensor == "as dense" else 1.0 + 0.0 * tp


def load_of(plan: Plan, ranks: Array, experts_each: Array, copies_each: Array) -> Array:
    """Load of the fullest rank over the mean, as stated or by the spread of experts' loads, up to
    what a capacity lets it have."""
    training = plan.training
    load: Array = training.expert_load
    if training.expert_spread is not None:
        load = fullest_load(ranks, experts_each, copies_each, training.expert_spread)
    most = training.capacity_factor
    return load if most is None else np.minimum(load, most)


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


@formula(
    unit="1",
    equation="1 + s Phi^-1(0.5264^(1/n)), s^2 = c^2 / e + 1 / m; Phi^-1(p) = (p^a - (1-p)^a) / b",
    source=(
        "largest of n normals, 2 % off from n = 4 on: Chen and Tyler 1999; a = 0.1349, b = 0.1975:"
        " Tukey's lambda distribution. Variance of sums of e experts of relative spread c, and of m"
        " copies that fall on ranks by chance: own derivation"
    ),
)
def fullest_load(ranks: Array, experts_each: Array, copies_each: Array, spread: Array) -> Array:
    """Expected load of the fullest of n ranks that share experts, over the mean.

    experts_each: of a rank; copies_each: of tokens, of a micro-batch and rank; spread: standard
    deviation of the load of an expert over its mean, beyond chance. 1 for one rank.
    """
    below = _MEDIAN ** (1 / np.maximum(ranks, 1.0))
    largest = (below**_LAMBDA - (1 - below) ** _LAMBDA) / _SLOPE
    deviation = np.sqrt(spread**2 / experts_each + 1 / copies_each)
    return 1 + np.where(ranks > 1, largest * deviation, 0.0)


def ranks(c: Columns) -> Array:
    """Ranks of one pipeline stage: experts and their copies are shared out over all of them."""
    return c.tp * c.replicas


def replicas(plan: Plan, c: Columns) -> Array:
    """Ranks with the same routed experts, or the same part of them: expert data parallelism."""
    return np.maximum(ranks(c) / (c.ep * tensor_of(plan, c.tp)), 1.0)
