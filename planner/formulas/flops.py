"""Floating-point operations. Model FLOP (for MFU) and hardware FLOP (for time and HFU) are two
quantities.

Convention of all model FLOP here: 6 per weight of a GEMM and token (2 forward, 4 backward), the LM
head included, the embedding lookup not; attention counts the query-key pairs that its mask leaves:
half of the score matrix under a causal mask, the band of a sliding window, the blocks of packed
documents. Masked pairs are not counted, else a kernel that skips them would exceed the peak of its
GPU. PaLM (arXiv 2204.02311, appendix B) counts the whole matrix, 12 L s a d per token: `PALM`
below.
"""

from __future__ import annotations

import numpy as np

from planner.formulas.params import parameter_leaves
from planner.ledger import Array, Ledger, formula
from planner.specs.layers import cores_of, scans_of
from planner.specs.model import ModelSpec
from planner.specs.parts import Attended, Batched, Core, Scan
from planner.specs.towers import views

CONVENTION = (
    "6 FLOP per matmul weight and token (head included), attention 6*L*s*heads*head_dim per token:"
    " the causal half of the scores; sliding windows and packed documents what they leave of it,"
    " full masks all of it"
)
PALM = 2.0  # score pairs that PaLM counts / pairs of a causal mask


@formula(
    unit="element",
    equation="min(i, w) summed over i=1..s: s^2/2, or w s - w^2/2 for w < s",
    source="counting",
)
def causal_pairs(seq_tokens: Array, window_tokens: Array) -> Array:
    """Query-key pairs of one head and sequence under a causal mask with a sliding window (a window
    >= s has no effect)."""
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


def core_pairs(core: Attended, seq_tokens: Array, ranks: Array = 1.0) -> Array:
    """Query-key pairs of one head and sequence that the mask of a core leaves. ranks: of context
    parallelism, who share the queries."""
    if core.keys is not None:
        return seq_tokens * float(core.keys) / ranks
    if core.spans is not None:
        groups, queries, keys = core.spans.at(seq_tokens)
        window = np.minimum(float(core.window or np.inf), keys)
        share = core.spans.at(seq_tokens, ranks)[1] / queries
        if core.mask == "full":
            return groups * queries * window * share
        return groups * causal_pairs(queries, window) * share
    s = np.minimum(seq_tokens / core.rate, float(core.chunk or np.inf))
    window = np.minimum(float(core.window or np.inf), s)
    pairs = causal_pairs(s, window)
    if core.mask == "full":  # as far ahead as back
        pairs = 2 * pairs
    pairs = pairs * (seq_tokens / s)
    pairs = pairs + causal_pairs(seq_tokens, float(core.near)) if core.near else pairs
    return pairs / ranks


def core_forward_flop(core: Core, seq_tokens: Array) -> Array:
    """FLOP forward of a core of one layer over one sequence."""
    if isinstance(core, Scan):
        return core.flop * seq_tokens
    if isinstance(core, Batched):
        return core.flop(1.0, seq_tokens)
    return attention_forward_flop(
        core_pairs(core, seq_tokens),
        float(core.heads),
        float(core.query_width),
        float(core.value_width),
    )


def matmul_weights(model: ModelSpec, seq_tokens: int = 1) -> Ledger:
    """Weights that one token multiplies with, over the whole model: leaves by name, the tied or
    untied head included. Those that see more or fewer tokens than the sequence has, where a model
    has towers, count as often as they do."""
    out: Ledger = {}
    for view in views(model, seq_tokens):
        has_head = view.name == model.head_tower
        for leaf in parameter_leaves(view.model):
            if leaf.matmul and (leaf.place not in ("first", "last") or has_head):
                often = leaf.used(view.seq_len) / seq_tokens
                active = leaf.count * leaf.active_frac[0] / leaf.active_frac[1]
                out[leaf.name] = out.get(leaf.name, 0.0) + active * leaf.times * often
        if model.tied_embeddings and has_head:
            head = float(model.padded_vocab * view.model.hidden)
            out["head/logits"] = head * view.seq_len / seq_tokens
    return out


def attended_elements(model: ModelSpec, seq_tokens: int, of_causal: float = 1.0) -> float:
    """Elements of keys and values that the queries of a token meet, over all layers: heads times
    both widths times keys, averaged over the tokens of a sequence.

    of_causal: how often those under a causal mask count; `PALM` for both halves of the matrix.
    """
    each = (
        count
        * core_forward_flop(core, float(view.seq_len))
        * (of_causal if isinstance(core, Attended) and core.mask == "causal" else 1.0)
        for view in views(model, seq_tokens)
        for core, count in cores_of(view.model)
        if not isinstance(core, Scan)
    )
    return float(sum(each, start=0.0) / (2 * seq_tokens))


def scanned_flop(model: ModelSpec) -> float:
    """FLOP forward per token of cores that carry a state, over all layers."""
    return float(sum(count * core.flop for core, count in scans_of(model)))


@formula(
    unit="FLOP",
    equation="6 N_matmul T + 6 K T + 3 F T",
    source="PaLM, arXiv 2204.02311 appendix B; FlopCounterMode",
)
def model_flop(
    matmul_weight_count: Array, attended: Array, tokens: Array, scanned: Array = 0.0
) -> Array:
    """FLOP of one forward and backward pass over `tokens`, no recompute.

    attended: elements of keys and values that the queries of a token meet, over all layers;
    scanned: FLOP forward per token of cores that carry a state.
    """
    return tokens * (6 * matmul_weight_count + 6 * attended + 3 * scanned)


@formula(
    unit="FLOP",
    equation="2 (N + N_above + N_trained) T + C T",
    source="counting: a frozen weight has no gradient, and what lies below the first that is"
    " trained no backward pass; LoRA (arXiv 2106.09685) 4 N + 6 N_adapters",
)
def partial_flop(
    matmul_weight_count: Array, above_count: Array, trained_count: Array, core: Array, tokens: Array
) -> Array:
    """FLOP of one forward and backward pass where some weights are frozen, no recompute.

    above_count: of the weights that a token meets those from the first trained layer on;
    trained_count: of these the trained ones; core: FLOP per token of attention and scans.
    """
    return tokens * (2 * (matmul_weight_count + above_count + trained_count) + core)
