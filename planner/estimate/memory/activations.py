"""Bytes that one layer keeps for backward, operator by operator, and what a recompute rule leaves
of them.

Symbols as in formulas.memory. Every function returns one value per row of the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate.layer import padded_vocab
from planner.estimate.stages import Repeated, StageSplit
from planner.formulas import experts, memory
from planner.ledger import Array, Ledger, total
from planner.specs.columns import Columns
from planner.specs.plan import Plan

# bytes per score element that is kept: without, with attention dropout. Fused softmax kernels keep
# its 16-bit output (and with dropout a mask and the dropped output, arXiv 2205.05198 eq. 1); eager
# attention an fp32 softmax and its 16-bit copy, with dropout a mask and the dropped copy in its
# place. FlashAttention keeps the state of its random numbers alone
SCORE_BYTES = {"fused_softmax": (2.0, 5.0), "eager": (6.0, 7.0)}
# per score element in backward, beyond what is kept: fused softmax in place; eager an fp32 gradient
# before and after softmax
_SCORE_GRADIENT = {"fused_softmax": 2.0, "eager": 6.0}
_COUNTED_ELEMENT = 2.0  # bytes of an element for which the bytes of a stack are counted
_STATISTIC_BYTES = 4.0  # of a norm, in fp32
_DROPOUT_MASKS = 2.0  # of a byte per element: after attention and after the MLP
_FP8_COPY = 1.0  # bytes per element of an operand's copy in fp8
# the least that an RMSNorm of several operators keeps per element where a stack does not say: an
# fp32 copy of its input and the normed element in 16 bit; own count
_SPLIT_NORM_BYTES = 6.0
_ROUTER_BYTES = 8.0  # per token and expert: fp32 logits and their softmax
_EXPERT_INPUT, _EXPERT_OUTPUT = (
    1.0,
    1.0,
)  # copies of h per routed token: gathered for the experts, to be weighted


def tokens_of(plan: Plan, c: Columns) -> tuple[Array, Array]:
    """(tokens of a micro-batch on this rank, those that norms and residuals see under sequence
    parallelism)."""
    tokens = c.tokens(plan.training.seq_len)
    return tokens, tokens / c.sequence_ranks


def routed_tokens(plan: Plan, c: Columns) -> Array:
    """Copies of tokens that routed experts of this rank work on in a micro-batch."""
    moe = plan.model.moe
    per_token = 0.0 if moe is None else float(moe.experts_per_token)
    training = plan.training  # buffers are as large as a capacity says, filled or not
    return (
        (training.capacity_factor or training.expert_load)
        * per_token
        * experts.gathered_tokens(
            c.tokens(plan.training.seq_len),
            c.tp,
            experts.tensor_of(plan, c.tp),
            c.sequence_parallel > 0,
        )
    )


def one_input(plan: Plan, c: Columns) -> Array:
    """Bytes of a layer's input, what full recompute keeps."""
    return memory.product_input_bytes(
        tokens_of(plan, c)[1], float(plan.model.hidden), plan.training.element_bytes
    )


def layer_activations(plan: Plan, c: Columns) -> Ledger:
    """Bytes that one mean layer keeps for backward, by operator, without recompute."""
    share = plan.model.expert_share
    out = attention_activations(plan, c)
    if share < 1:
        out |= {name: (1 - share) * leaf for name, leaf in dense_activations(plan, c).items()}
    if share > 0:
        out |= {name: share * leaf for name, leaf in expert_activations(plan, c).items()}
    return out


def norm_bytes(plan: Plan) -> float:
    """Bytes that a norm keeps per element: its input, or where it is several operators an fp32 copy
    and the normed element."""
    e = plan.training.element_bytes
    if plan.fused_norm:
        return e
    return max(plan.stack.activations.norm, _SPLIT_NORM_BYTES) - _COUNTED_ELEMENT + e


def _input_bytes(plan: Plan) -> float:
    """Bytes per element of what a GEMM keeps as its input."""
    return (
        _FP8_COPY
        if plan.training.precision == "fp8" and plan.stack.activations.fp8_inputs
        else plan.training.element_bytes
    )


def _inputs(plan: Plan, c: Columns) -> Array:
    """Tokens of the inputs that column-parallel GEMMs keep."""
    tokens, local = tokens_of(plan, c)
    gathered = plan.stack.activations.gathered_inputs
    whole = gathered == "always" or ((gathered == "without pipeline") & (c.pp == 1))
    return np.where(whole, tokens, local)


def attention_activations(plan: Plan, c: Columns) -> Ledger:
    """Norms of the layer and its attention."""
    model, stack, training = plan.model, plan.stack, plan.training
    e, tp, h = plan.training.element_bytes, c.tp, float(model.hidden)
    wide = e / _COUNTED_ELEMENT
    tokens, local = tokens_of(plan, c)
    # per token: mean and deviation, or the latter alone
    statistics = _STATISTIC_BYTES * (2.0 if model.norm == "layernorm" else 1.0)
    out: Ledger = {
        "norm": memory.norm_kept_bytes(local, h, float(model.norms_per_layer), norm_bytes(plan)),
        "norm/statistics": memory.norm_kept_bytes(
            local, 1.0, float(model.norms_per_layer), statistics
        ),
        "attention/input": memory.product_input_bytes(_inputs(plan, c), h, _input_bytes(plan)),
    }
    if model.latent is None:
        width = float(model.heads * model.head_dim)
        copies = e + stack.activations.qkv_copies * wide
        pairs = 2.0 * np.maximum(model.kv_heads, tp) * model.head_dim
        # Ulysses repeats keys and values where its ranks are more than their heads
        sharing = tp * c.cp if plan.context_way == "ulysses" else tp
        sent = 2.0 * np.maximum(model.kv_heads, sharing) * model.head_dim
        out["attention/qkv"] = memory.projected_bytes(tokens, width + sent, copies, tp)
        if model.qk_norm != "none":
            normed = memory.projected_bytes(tokens, width + pairs / 2, norm_bytes(plan), tp)
            heads = (
                model.heads + np.maximum(model.kv_heads, tp) if model.qk_norm == "per_head" else 2.0
            )
            out["attention/qk_norm"] = normed + memory.projected_bytes(
                tokens, heads, statistics, tp
            )
    else:
        mla = model.latent
        width = float(model.heads * mla.value_head_dim)
        low = float((mla.query_rank or 0) + mla.kv_rank + mla.rope_head_dim)
        high = float(
            model.heads
            * (2 * mla.nope_head_dim + mla.rope_head_dim + mla.value_head_dim + mla.rope_head_dim)
        )
        out["attention/latent"] = memory.product_input_bytes(local, 2 * low, e)
        out["attention/qkv"] = memory.projected_bytes(tokens, high, e, tp)
    dropped = model.dropout and model.dropout_of != "hidden"
    kept_scores = 0.0 if plan.flash_attention else SCORE_BYTES[plan.attention][int(dropped)]
    score = kept_scores * wide
    out["attention/core"] = memory.attention_core_bytes(
        tokens, float(model.heads), float(training.seq_len), score + 0 * tp, tp
    )
    # an fp8 GEMM keeps its own copy of the attention's output
    again = _FP8_COPY if _input_bytes(plan) < e else 0.0
    out["attention/output"] = memory.projected_bytes(tokens, width, e + again, tp)
    if _drops_hidden(plan):
        out["dropout"] = memory.dropout_mask_bytes(local, h, _DROPOUT_MASKS)
    return out


def _drops_hidden(plan: Plan) -> bool:
    return plan.model.dropout and plan.model.dropout_of != "attention"


def embedding_mask(plan: Plan, c: Columns) -> Array:
    """What dropout of the embedding keeps of a micro-batch; no layer repeats it."""
    masks = 1.0 if _drops_hidden(plan) else 0.0
    return memory.dropout_mask_bytes(tokens_of(plan, c)[1], float(plan.model.hidden), masks)


def _mlp_bytes(plan: Plan) -> float:
    """Bytes per MLP element: inputs of the activation function and of the second GEMM."""
    kept, e = plan.stack.activations, plan.training.element_bytes
    each = kept.mlp_gated if plan.model.mlp == "gated" else kept.mlp_plain
    # a ReLU keeps its output alone, which the second GEMM keeps anyway
    if plan.model.mlp == "plain" and plan.model.activation == "relu":
        each -= _COUNTED_ELEMENT if each >= 2 * _COUNTED_ELEMENT else 0.0
    return each * e / _COUNTED_ELEMENT - (e - _input_bytes(plan))


def dense_activations(plan: Plan, c: Columns) -> Ledger:
    """A dense MLP. A parallel block with one norm reads the attention's input, which is kept
    already."""
    model, tokens = plan.model, tokens_of(plan, c)[0]
    own_input = not (model.parallel_block and model.norms_per_layer == 1)
    inputs = memory.product_input_bytes(_inputs(plan, c), float(model.hidden), _input_bytes(plan))
    return {
        "mlp/input": inputs if own_input else 0.0 * inputs,
        "mlp/hidden": memory.mlp_kept_bytes(
            tokens, float(model.ffn_hidden), _mlp_bytes(plan), c.tp
        ),
    }


def expert_activations(plan: Plan, c: Columns) -> Ledger:
    """Router, experts and shared experts."""
    model, tp = plan.model, c.tp
    if model.moe is None:
        return {}
    tokens, _ = tokens_of(plan, c)
    h, e = float(model.hidden), plan.training.element_bytes
    etp = experts.tensor_of(plan, tp)
    routed = routed_tokens(plan, c)
    widths = memory.mlp_kept_bytes(routed, float(model.moe.ffn_hidden), _mlp_bytes(plan), etp)
    shared = memory.mlp_kept_bytes(tokens, float(model.moe.shared_ffn_hidden), _mlp_bytes(plan), tp)
    copies = _EXPERT_INPUT * _input_bytes(plan) + _EXPERT_OUTPUT * e
    return {
        "moe/input": memory.product_input_bytes(_inputs(plan, c), h, e),
        "moe/router": memory.product_input_bytes(tokens, float(model.moe.experts), _ROUTER_BYTES),
        "moe/routed": memory.product_input_bytes(routed, h, copies),
        "moe/hidden": widths + shared,
    }


def _selective_saving(plan: Plan, c: Columns, kept: Ledger) -> Array:
    """Bytes per layer that selective recompute no longer keeps."""
    if plan.training.selective == "attention":
        return kept["attention/core"]
    # torchtitan's rule keeps the layer's input, the attention's output and the output of every
    # second GEMM: q, v, gate, down; compiled, the last of these is not kept, since backward does
    # not read it. It runs in 16 bit
    e, model = _COUNTED_ELEMENT, plan.model
    tokens = c.tokens(plan.training.seq_len)
    whole = 1.0 if plan.training.compile else 2.0
    widths = whole * model.hidden + (2 * model.heads + model.kv_heads) * model.head_dim / c.tp
    widths = widths + model.ffn_hidden / c.tp
    return np.maximum(total(kept) - e * tokens * widths - kept["attention/core"], 0.0)


@dataclass(frozen=True)
class Kept:
    """Bytes per row of the table: of a stage's layers for one micro-batch, of what backward works
    on, of one layer."""

    stage: Array  # kept by all layers of the stage for one micro-batch
    unit: Array  # kept by the unit that backward works on: a layer, or a recompute group
    unit_layers: Array
    working: Array  # of a repeated layer or group, beyond what was kept
    whole: Array  # one mean layer without recompute
    input: Array
    largest: Array  # what the layer that keeps most keeps
    transient: Array  # gradients alive inside the largest operator of backward


def kept(plan: Plan, c: Columns, split: StageSplit, again: Repeated) -> Kept:
    """What the recompute rule of every row leaves of the activations of a stage. again: the layers
    that it repeats; a group works on one of its chunk at a time."""
    shared = attention_activations(plan, c)
    entering = one_input(plan, c)
    # the input is among the activations already, unless a norm of several operators keeps fp32
    # copies in its place
    counted = entering if plan.fused_norm else 0.0 * entering
    repeats = c.is_recompute("full", "block", "group")
    selective, grouped = c.is_recompute("selective"), c.is_recompute("group")
    stage = np.where(repeats, again.inputs * entering, 0.0)
    unit, working, largest = 0.0 * stage, 0.0 * stage, 0.0 * stage
    wholes = []
    for count, repeated, part in (
        (split.dense, again.dense, dense_activations(plan, c)),
        (split.moe, again.moe, expert_activations(plan, c)),
    ):
        ledger = shared | part
        whole = total(ledger)
        wholes.append(whole)
        saved = np.where(selective, _selective_saving(plan, c, ledger), 0.0)
        here = count > 0
        left = count - repeated  # layers that keep what backward needs
        stage = stage + left * (whole - saved)
        first = np.where(repeats, entering, whole - saved)
        unit = np.where(here, np.maximum(unit, first), unit)
        most = np.where(left > 0, whole - saved, entering)
        largest = np.where(here, np.maximum(largest, most), largest)
        layers = np.where(grouped, again.group, 1.0)
        once = np.where(repeats, np.maximum(layers * whole - counted, 0.0), saved)
        working = np.where(here, np.maximum(working, once), working)
    share = plan.model.expert_share
    mean = (1 - share) * wholes[0] + share * wholes[1]
    return Kept(
        stage,
        np.minimum(unit, stage),
        again.group,
        working,
        mean,
        entering,
        largest,
        _transient(plan, c),
    )


def _transient(plan: Plan, c: Columns) -> Array:
    """Gradients alive beside the activations inside one layer's backward: of the MLP's hidden
    elements or of the scores."""
    model, e = plan.model, plan.training.element_bytes
    tokens, local = tokens_of(plan, c)
    elements = tokens * (float(model.ffn_hidden) if model.dense_layers else 0.0) / c.tp
    if model.moe is not None and model.moe_layers:
        routed = routed_tokens(plan, c) * model.moe.ffn_hidden / experts.tensor_of(plan, c.tp)
        elements = np.maximum(elements, routed + tokens * model.moe.shared_ffn_hidden / c.tp)
    # a GELU's output is freed before the gradient of its input comes; a ReLU keeps it, a gated MLP
    # has two such gradients, which Liger writes over the gate's inputs (ops/swiglu.py of
    # linkedin/Liger-Kernel): that of its output is all there is beside them
    one = model.activation == "gelu" if model.mlp == "plain" else plan.liger
    gradients = 1.0 if one else 2.0
    hidden = elements * gradients * e
    scores = 0.0 if plan.flash_attention else _SCORE_GRADIENT[plan.attention] * e / _COUNTED_ELEMENT
    core = tokens * model.heads / c.tp * plan.training.seq_len * scores
    return np.maximum(hidden, core) + memory.product_input_bytes(local, float(model.hidden), e)


def sequence_buffers(plan: Plan, c: Columns) -> Array:
    """Whole tensors of one GEMM under sequence parallelism: its gathered input, where that is
    not kept (Megatron-LM's "mpu" buffer, nanotron's MemoryBuffer), and an output that is yet to be
    scattered."""
    tokens, local = tokens_of(plan, c)
    h, e = float(plan.model.hidden), plan.training.element_bytes
    gathered = np.where(_inputs(plan, c) < tokens, memory.product_input_bytes(tokens, h, e), 0.0)
    return np.where(local < tokens, gathered + memory.product_input_bytes(tokens, h, e), 0.0)


def logits(plan: Plan, c: Columns) -> Array:
    """Logits alive at the loss, whatever stage computes it."""
    tokens = tokens_of(plan, c)[0]
    e = plan.training.element_bytes
    kept = plan.stack.activations
    compiled = plan.training.compile and kept.compiled_logits is not None
    each = e if plan.training.fused_cross_entropy else kept.logits
    if compiled and not plan.training.fused_cross_entropy:
        each = kept.compiled_logits or 0.0
    # without mixed precision, what has 16-bit logits in it has them in fp32
    if not plan.training.mixed_precision and each % e == _COUNTED_ELEMENT:
        each += e - _COUNTED_ELEMENT
    share = np.ones_like(c.tp) if plan.stack.activations.gathered_logits else c.tp
    vocab, chunks = padded_vocab(plan, c.tp), plan.training.loss_chunks
    whole = memory.logits_bytes(tokens, vocab, each, share)
    if chunks == 1:
        return whole
    return memory.chunked_loss_bytes(
        whole, float(chunks), tokens, float(plan.model.hidden), vocab, e, c.tp
    )


def head_activations(plan: Plan, c: Columns) -> Array:
    """What the final norm and the head keep of a micro-batch: the norm's input and the head's."""
    h, (_, local) = float(plan.model.hidden), tokens_of(plan, c)
    norm = memory.norm_kept_bytes(local, h, float(plan.model.final_norm), norm_bytes(plan))
    return norm + memory.product_input_bytes(_inputs(plan, c), h, plan.training.element_bytes)
