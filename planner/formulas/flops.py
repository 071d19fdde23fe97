"""Floating-point operations. Model FLOP (for MFU) and hardware FLOP (for time and HFU) are two
quantities.

Convention of all model FLOP here: 6 per weight of a GEMM and token (2 forward, 4
backward), the LM head included, the embedding lookup not; attention counts the query-key pairs that
its mask leaves: half of the score matrix under a causal mask, the band of a sliding window, the
blocks of packed documents. What a mask hides from the kernel is no work, and a GPU that does none
of it would else be said to do more than its peak. PaLM (arXiv 2204.02311, appendix B) counts the
whole matrix, 12 L s a d per token: `PALM` below.
"""

from __future__ import annotations

import numpy as np

from planner.formulas.params import parameter_leaves
from planner.ledger import Array, Ledger, formula
from planner.specs.model import ModelSpec
from planner.specs.parts import Attended, Core, Scan

CONVENTION = (
    "6 FLOP per matmul weight and token (head included), attention 6*L*s*heads*head_dim per token:"
    " the causal half of the scores; sliding windows and packed documents what they leave of it"
)
PALM = 2.0  # score pairs that PaLM counts over those of a causal mask


@formula(
    unit="element",
    equation="min(i, w) summed over i=1..s: s^2/2, or w s - w^2/2 for w < s",
    source="counting",
)
def causal_pairs(seq_tokens: Array, window_tokens: Array) -> Array:
    """Query-key pairs of one head and sequence under a causal mask with a sliding window (a window
    >= s is no window)."""
    w = np.minimum(window_tokens, seq_tokens)
    return w * seq_tokens - w * w / 2


@formula(
    unit="FLOP",
    equation="2 (d_qk + d_v) a pairs",
    source="two batched GEMMs, q k^T and p v; Korthikanti et al. 2022 appendix A",
)
def attention_forward_flop(
    pairs: Array, heads: Array, query_width: Array, value_width: Array
) -> Array:
    """FLOP of scores and weighted values for `pairs` query-key pairs per head."""
    return 2 * pairs * heads * (query_width + value_width)


def core_pairs(core: Attended, seq_tokens: Array) -> Array:
    """Query-key pairs of one head and sequence that the mask of a core leaves."""
    if core.keys is not None:
        return seq_tokens * float(core.keys)
    s = np.minimum(seq_tokens, float(core.chunk or np.inf))
    window = np.minimum(float(core.window or np.inf), s)
    pairs = causal_pairs(s, window)
    if core.mask == "full":  # as far ahead as back
        pairs = 2 * pairs
    return pairs * (seq_tokens / s)


def core_forward_flop(core: Core, seq_tokens: Array) -> Array:
    """FLOP forward of a core of one layer over one sequence."""
    if isinstance(core, Scan):
        return core.flop * seq_tokens
    return attention_forward_flop(
        core_pairs(core, seq_tokens),
        float(core.heads),
        float(core.query_width),
        float(core.value_width),
    )


def head_widths(model: ModelSpec) -> tuple[int, int]:
    """Width of a query/key head and of a value head."""
    if model.latent is None:
        return model.head_dim, model.head_dim
    return model.latent.nope_head_dim + model.latent.rope_head_dim, model.latent.value_head_dim


def matmul_weights(model: ModelSpec) -> Ledger:
    """Weights that one token multiplies with, over the whole model: leaves by name, the tied or
    untied head included."""
    out: Ledger = {}
    for leaf in parameter_leaves(model):
        if leaf.matmul:
            active = leaf.count * leaf.active_frac[0] / leaf.active_frac[1]
            out[leaf.name] = out.get(leaf.name, 0.0) + active * leaf.times
    if model.tied_embeddings:
        out["head/logits"] = float(model.padded_vocab * model.hidden)
    return out


def windowed_share(model: ModelSpec) -> float:
    """Share of layers with a sliding window."""
    if model.attention_window is None:
        return 0.0
    return (model.layers // model.window_every) / model.layers


def mean_pairs(model: ModelSpec, seq_tokens: Array) -> Array:
    """Causal query-key pairs per head and sequence, averaged over layers with and without a
    window."""
    share = windowed_share(model)
    pairs = (1 - share) * causal_pairs(seq_tokens, seq_tokens)
    if share:
        pairs = pairs + share * causal_pairs(seq_tokens, float(model.attention_window or 0))
    return pairs


def counted_positions(model: ModelSpec, seq_tokens: Array) -> Array:
    """Keys per query that the convention counts, averaged over queries and layers: those that the
    causal mask leaves, and the window of a windowed layer."""
    return mean_pairs(model, seq_tokens) / seq_tokens


@formula(
    unit="FLOP",
    equation="6 N_matmul T + 3 * 4 s a (d_qk + d_v)/2 L T",
    source="PaLM, arXiv 2204.02311 appendix B; FlopCounterMode",
)
def model_flop(
    matmul_weight_count: Array, attention_weight: Array, tokens: Array, seq_tokens: Array
) -> Array:
    """FLOP of one forward and backward pass over `tokens` that each see `seq_tokens` positions, no
    recompute.

    attention_weight: layers * heads * (query width + value width) elements.
    """
    return tokens * (6 * matmul_weight_count + 6 * attention_weight * seq_tokens)
