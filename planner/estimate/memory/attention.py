"""Bytes that attention keeps for backward: queries, keys, values, output, and scores where a kernel
writes them."""

from __future__ import annotations

import numpy as np

from planner.estimate.memory import eager, norms
from planner.estimate.memory.low_precision import low_copy_bytes
from planner.estimate.memory.norms import COUNTED_ELEMENT
from planner.estimate.memory.tokens import tokens_of
from planner.formulas import memory
from planner.ledger import Array, Ledger
from planner.specs.columns import Columns
from planner.specs.layers import parts_of
from planner.specs.parts import Attended, Attention, CrossAttention, Latent
from planner.specs.plan import Plan

# bytes per score element that is kept: without, with attention dropout. Fused softmax kernels keep
# its 16-bit output (and with dropout a mask and the dropped output, arXiv 2205.05198 eq. 1); eager
# attention an fp32 softmax and its 16-bit copy, with dropout a mask and the dropped copy in its
# place. FlashAttention keeps only the state of its random numbers
_SCORE_BYTES = {"fused_softmax": (2.0, 5.0), "eager": (6.0, 7.0)}
# per score element in backward, beyond what is kept: fused softmax in place; eager an fp32 gradient
# before and after softmax
_SCORE_GRADIENT = {"fused_softmax": 2.0, "eager": 6.0}
# micro-batch times heads that a thread block divides, and keys that it takes at most
_SOFTMAX_BATCHES, _SOFTMAX_KEYS = 4.0, 4096


def by_heads(plan: Plan, c: Columns, part: Attention | CrossAttention) -> Ledger:
    """Saved activations of attention by heads: queries, keys, values and output."""
    stack, e, tp = plan.stack, plan.training.element_bytes, c.tp
    (core,) = part.core()
    tokens, width = tokens_of(plan, c)[0], float(part.heads * part.head_dim)
    each = (core.query_width + core.value_width) * core.own_kv
    pairs = float(each) * np.maximum(part.kv_heads, tp)
    # Ulysses repeats keys and values where its ranks are more than their heads
    sharing = tp * c.cp if plan.context_way == "ulysses" else tp
    sent = float(each) * np.maximum(part.kv_heads, sharing)
    if stack.activations.repeated_kv:
        sent = sent + float(each) * (part.heads - part.kv_heads)
    if isinstance(part, CrossAttention):  # of another sequence
        sent = sent * (float(core.keys or plan.training.seq_len) / float(plan.training.seq_len))
    if isinstance(part, Attention):
        sent = sent + eager.rotated_beside(plan, c, part)
    out: Ledger = {"attention/qkv": memory.projected_bytes(tokens, width + sent, e, tp)}
    if part.qk_norm != "none":
        of_norm = norms.norm_bytes(plan, of_stream=False)
        if eager.wide_stream(plan) and not plan.fused_norm:  # what it reads is in 16 bit
            of_norm += eager.normed_bytes(plan) - eager.WIDE_BYTES
        normed = memory.projected_bytes(tokens, width + pairs / 2, of_norm, tp)
        heads = part.heads + np.maximum(part.kv_heads, tp) if part.qk_norm == "per_head" else 2.0
        out["attention/qk_norm"] = normed + memory.projected_bytes(
            tokens, heads, norms.statistic_bytes(plan), tp
        )
    return out | _core(plan, c, core)


def scores_kernel(plan: Plan, core: Attended) -> str | None:
    """The kernel of attention where it writes its scores; None where they stay on the chip. Scores
    with a learned bias take a softmax in 16 bit (T5 of transformers 5.23)."""
    if plan.attention == "eager" and eager.narrow_softmax(plan):
        return "fused_softmax"
    if not plan.flash_attention:
        return plan.attention
    return "fused_softmax" if core.biased else None


def _falls_back(plan: Plan, c: Columns, core: Attended) -> Array:
    """1 where Megatron's fused softmax does not take the shape, for which torch's own runs in fp32
    (FusedScaleMaskSoftmax.is_kernel_available of megatron/core/fusions/fused_softmax.py)."""
    if plan.attention != "fused_softmax" or plan.stack.family != "megatron":
        return 0.0 * c.tp
    keys, batches = core.keys or plan.training.seq_len, c.micro_batch * core.heads / c.tp
    return 1.0 * ((np.mod(batches, _SOFTMAX_BATCHES) > 0) | (keys > _SOFTMAX_KEYS))


def latent(plan: Plan, c: Columns, mla: Latent) -> Ledger:
    """Saved activations of latent attention: compressed and projected queries, keys, values,
    output."""
    e = plan.training.element_bytes
    tokens, local = tokens_of(plan, c)
    low = float((mla.query_rank or 0) + mla.kv_rank + mla.rope_head_dim)
    wide = 2 * mla.nope_head_dim + mla.rope_head_dim + mla.value_head_dim + mla.rope_head_dim
    out: Ledger = {
        "latent/low": memory.product_input_bytes(local, low, e),
        "latent/normed": memory.product_input_bytes(local, low, e),
        "latent/qkv": memory.projected_bytes(tokens, float(mla.heads * wide), e, c.tp),
    }
    *_, core = (core for core in mla.core() if isinstance(core, Attended))
    return out | _core(plan, c, core)


def score_bytes(plan: Plan, core: Attended) -> float:
    """Kept per score of a core without dropout."""
    kernel = scores_kernel(plan, core)
    each = _SCORE_BYTES[kernel][0] if kernel else 0.0
    return each * plan.training.element_bytes / COUNTED_ELEMENT


def _core(plan: Plan, c: Columns, core: Attended) -> Ledger:
    """Scores where a kernel keeps them, and the weighted values."""
    e, tp, tokens = plan.training.element_bytes, c.tp, tokens_of(plan, c)[0]
    dropped = plan.model.dropout and plan.model.dropout_of != "hidden"
    kernel = scores_kernel(plan, core)
    kept: Array = _SCORE_BYTES[kernel][int(dropped)] if kernel else 0.0
    if kernel:
        slow = _falls_back(plan, c, core)
        kept = np.where(slow > 0, _SCORE_BYTES["eager"][int(dropped)], kept)
    if kernel == "eager" and eager.runs_code(plan, "capped scores"):
        kept = kept + COUNTED_ELEMENT  # what tanh returns
    score, keys = kept * (e / COUNTED_ELEMENT), float(core.keys or plan.training.seq_len)
    # a GEMM of 8 or 4 bit keeps its own copy of the attention's output
    again = low_copy_bytes(plan) * (1 - plan.training.wide_layers / plan.model.layers)
    masked = eager.masked_rows(plan, c)
    repeated = 0.0 * masked  # keys and values for every head
    if core.kv_heads:
        beyond = float((core.heads - core.kv_heads) * (core.query_width + core.value_width))
        # one head expands to others as a view, which this kernel takes
        copied = masked * (core.kv_heads > 1)
        repeated = np.where(eager.masks(plan), 1.0, copied) * beyond
    output = memory.projected_bytes(tokens, float(core.heads * core.value_width), e, tp)
    # queries head by head leave an output that is copied for the next matrix
    joined = eager.joined_rotary(plan) and plan.flash_attention
    return ({"attention/joined": output} if joined else {}) | {
        "attention/core": memory.attention_core_bytes(
            tokens, float(core.heads), keys, score + 0 * tp, tp
        )
        + memory.projected_bytes(tokens, repeated, e, tp),
        "attention/mask": e * masked * tokens * keys,
        "attention/output": output * (1 + again / e),
    }


def score_gradients(plan: Plan, c: Columns, core: Attended) -> Array:
    """Gradients of scores that are alive in backward, beyond what is kept."""
    kernel, tokens = scores_kernel(plan, core), tokens_of(plan, c)[0]
    if not kernel:
        return 0.0 * tokens
    keys = core.keys or plan.training.seq_len
    slow = _falls_back(plan, c, core) > 0
    of_score = np.where(slow, _SCORE_GRADIENT["eager"], _SCORE_GRADIENT[kernel])
    scores = tokens * core.heads / c.tp * keys
    return scores * of_score * plan.training.element_bytes / COUNTED_ELEMENT


def score_buffer(plan: Plan, c: Columns) -> Array:
    """The buffer that products of queries and keys are written to, where it stays (the same "mpu"
    buffer, get_global_memory_buffer in transformer/dot_product_attention.py of Megatron-core)."""
    tokens, largest = tokens_of(plan, c)[0], 0.0 * c.tp
    if not plan.stack.activations.score_buffer:
        return largest
    for part, _ in parts_of(plan.model):
        for core in part.core():
            if isinstance(core, Attended) and scores_kernel(plan, core):
                keys = float(core.keys or plan.training.seq_len)
                each = plan.training.element_bytes * core.heads / c.tp
                largest = np.maximum(largest, each * tokens * keys)
    return largest
