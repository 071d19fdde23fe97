"""Attention cores of a layer (scores, softmax, weighted values) and the mixers that replace
them."""

from __future__ import annotations

import numpy as np

from planner.estimate import uneven
from planner.estimate.layer import context, mixers
from planner.estimate.layer.gemm import UNALIGNED_WEIGHT, gemm_s
from planner.estimate.layer.operators import stream_s
from planner.estimate.layer.shape import BothWays, LayerShape, core_flop
from planner.estimate.machine import Machine
from planner.formulas import flops, kernels
from planner.ledger import Array
from planner.specs.parts import Attended, Batched, Core, Scan

# five GEMMs backward, among them the scores again, for two forward: Dao 2023 (FlashAttention-2,
# arXiv 2307.08691) section 4.1
_FLASH_BACKWARD_FLOP = 2.5
# kernels backward: sums of output times its gradient, the loop over keys, and the gradient of the
# queries from fp32 (flash_bwd_launch_template.h of flash-attention 2)
_FLASH_KERNELS = BothWays(1.0, 3.0)
_BACKWARD_GEMMS = 2.0  # for each forward, without flash attention
# bytes moved per score element without flash attention, counted from the tensors that a fused
# softmax reads and writes in 16 bit: Korthikanti et al. 2022 (arXiv 2205.05198) section 4
_SCORES = BothWays(9.0, 11.0)
_SOFTMAX_KERNELS = 2.0  # softmax with scale and mask, and dropout of its result; own count
# bytes per query and head of the gradient of a sink: its share of the row's sum, and the row's sum
# of output times gradient, in fp32, read and added up by a kernel; forward a sink is one more term
# of a sum on the chip. Without a fused kernel per score: joined to the others, shifted by the
# largest, and cut off again; backward cut and joined (eager_attention_forward of gpt_oss in
# transformers)
_FLASH_SINK = 8.0
_SINKS = BothWays(12.0, 8.0)
# eager attention scales, masks and normalises in kernels of their own: this many times the traffic
# and the kernels of a fused softmax; own count
_EAGER = 2.0


def core_s(shape: LayerShape, m: Machine) -> BothWays[Array]:
    """Seconds of the cores of a mean layer."""
    mix = shape.mix
    cores = [(_one_core(shape, m, core), count / mix.layers) for core, count in mix.cores]
    forward = sum((time.forward * share for time, share in cores), start=0.0 * shape.tokens)
    backward = sum((time.backward * share for time, share in cores), start=0.0 * shape.tokens)
    if np.any(shape.cp > 1):
        merged = context.merge_s(shape, m)
        forward, backward = forward + merged.forward, backward + merged.backward
    return BothWays(forward, backward)


def _one_core(shape: LayerShape, m: Machine, core: Core) -> BothWays[Array]:
    plan = shape.plan
    flop = core_flop(shape, core)
    if isinstance(core, Scan):
        moved = core.read_elements / shape.tp * plan.training.element_bytes * shape.tokens
        architecture = plan.cluster.gpu.architecture
        # ranks that share sequences take whole ones of a share of the heads
        return mixers.scan_s(m, architecture, core.name, flop, moved, plan.training.seq_len)
    if isinstance(core, Batched):
        return _batched_s(shape, m, core)
    if core.kernel != "attention":
        return _sparse_s(shape, m, core, flop)
    if plan.flash_attention and not core.biased:
        fused = _flash_s(shape, m, core, flop)
        if not core.sinks:
            return fused
        rows = shape.tokens * core.heads / shape.tp
        return BothWays(fused.forward, fused.backward + stream_s(plan, m, _FLASH_SINK * rows, 1.0))
    return _scores_s(shape, m, core)


def _batched_s(shape: LayerShape, m: Machine, core: Batched) -> BothWays[Array]:
    """Products of activations of a traced block: backward one for the gradient of each operand."""
    # none multiplies tokens with tokens where ranks share a sequence
    rows, columns, inner, batch = core.sizes(shape.micro_batch, shape.length / shape.cp)
    batch = batch / shape.tp if core.split else batch
    width = shape.plan.training.element_bytes
    # operands of a product of activations are odd in either width as one with a weight is
    alignment = kernels.alignment_frac(columns, inner, width, UNALIGNED_WEIGHT)

    def product_s(rows: Array, columns: Array, inner: Array) -> Array:
        return gemm_s(shape.plan, m, rows, columns, inner, batch, alignment=alignment)

    gradients = product_s(rows, inner, columns) + product_s(inner, columns, rows)
    return BothWays(product_s(rows, columns, inner), gradients)


def _sparse_s(shape: LayerShape, m: Machine, core: Attended, flop: Array) -> BothWays[Array]:
    """Attention over chosen keys, or the choice. Every query pays for all of its slots."""
    plan, s = shape.plan, float(shape.plan.training.seq_len)
    queries, architecture, keys = shape.tokens, plan.cluster.gpu.architecture, s / core.rate
    if core.kernel == "dsa":
        slots = queries * (min(float(core.window or keys), keys) + min(float(core.near), s))
        heads = core.heads / shape.tp
        paid = flops.attention_forward_flop(slots, heads, float(core.absorbed), 0.0)
        return mixers.sparse_attention_s(m, architecture, paid)
    pairs = flops.core_pairs(core, s, shape.cp) * shape.micro_batch
    chosen = min(float(core.chosen), keys)
    choosing = queries * (1 - chosen / keys)
    return mixers.sparse_index_s(m, architecture, pairs, flop, choosing, chosen)


def _flash_s(shape: LayerShape, m: Machine, core: Attended, flop: Array) -> BothWays[Array]:
    """Fused kernels, one for each block of a ring, over the pairs that masks and packed documents
    leave."""
    calls = context.blocks_of(shape, core)
    filled = 1.0 if "attention_shape" in m.without else _filled_frac(shape, m, core, calls)

    def kernel_s(flop: Array, launches: float, frac: Array, half: Array) -> Array:
        short = 1.0 if "attention_shape" in m.without else _shape_frac(shape, m, core, half)
        return kernels.flash_attention_s(
            flop,
            launches * calls,
            rate_flop_per_s=m.wide_rate * m.sustained_clock,
            attention_frac=frac * short * filled,
            gap_s=m.kernel_gap,
        )

    forward = m.attention_forward * m.attention_version_forward
    backward = m.attention_backward * m.attention_version_backward
    return BothWays(
        kernel_s(flop, _FLASH_KERNELS.forward, forward, m.attention_half_forward),
        kernel_s(
            _FLASH_BACKWARD_FLOP * flop,
            _FLASH_KERNELS.backward,
            backward,
            m.attention_half_backward,
        ),
    )


def _shape_frac(shape: LayerShape, m: Machine, core: Attended, half: Array) -> Array:
    """Share of the attention rate that sequence, window and head width leave. half: tokens at which
    half of the rate is reached; 0: as on an A100."""
    s = shape.length * uneven.document_frac(shape.plan)
    if core.spans is not None:
        s = core.spans.at(s)[2]
    s = s * (2.0 if core.mask == "full" else 1.0)  # rates are known by causal lengths
    block = context.block_tokens(shape, core, s)
    limit = min(float(core.window or np.inf), float(core.chunk or np.inf))
    short = np.minimum(limit, s)
    return kernels.attention_shape_frac(
        np.minimum(short, block), float(core.value_width), half, m.attention_width_exponent
    )


def _filled_frac(shape: LayerShape, m: Machine, core: Attended, blocks: Array) -> Array:
    """Share of the multiprocessors that have queries in one call of the kernel, and of their tiles
    that are queries: little where a micro-batch has few tokens and heads on a rank. blocks: of a
    ring, each a call."""
    ways = context.split(shape.plan, shape.tp, shape.cp)
    length, sequences = shape.length, shape.micro_batch
    if core.spans is not None:
        groups, length, _ = core.spans.at(length)
        sequences = sequences * groups
        if not core.spans.queries.power:  # every rank has all
            ways = context.Split(np.ones_like(ways.heads), np.ones_like(ways.tokens))
    pieces = sequences * core.heads / (shape.tp * ways.heads)
    return kernels.filled_frac(pieces, length / blocks, ways.tokens / blocks, m.compute_units)


def _scores_s(shape: LayerShape, m: Machine, core: Attended) -> BothWays[Array]:
    """GEMMs over the whole score matrix, and a softmax that reads and writes it."""
    plan = shape.plan
    s, qk = shape.length, float(core.query_width)
    keys = s if core.keys is None else float(core.keys)
    batch, rows = shape.micro_batch * core.heads / shape.tp, s / shape.cp
    if core.spans is not None:
        groups, rows, keys = core.spans.at(s, shape.cp)
        batch = batch * groups
    width = plan.training.element_bytes
    alignment = kernels.alignment_frac(keys, qk, width, m.vector_rate / m.wide_rate)
    gemms = gemm_s(plan, m, rows, keys, qk, batch, alignment=alignment) + gemm_s(
        plan, m, rows, qk, keys, batch, alignment=alignment
    )
    slower = _EAGER if plan.attention == "eager" or core.biased else 1.0
    scores = batch * rows * keys

    def softmax(bytes_each: float) -> Array:
        return stream_s(plan, m, bytes_each * slower * scores, _SOFTMAX_KERNELS * slower)

    forward, backward = (
        each + core.sinks * sink
        for each, sink in zip(
            (_SCORES.forward, _SCORES.backward), (_SINKS.forward, _SINKS.backward), strict=True
        )
    )
    return BothWays(gemms + softmax(forward), _BACKWARD_GEMMS * gemms + softmax(backward))
