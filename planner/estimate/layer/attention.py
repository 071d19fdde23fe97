"""The attention core: scores, softmax and weighted values."""

from __future__ import annotations

import numpy as np

from planner.estimate import uneven
from planner.estimate.layer import context
from planner.estimate.layer.matmul import gemm_s
from planner.estimate.layer.operators import stream_s
from planner.estimate.layer.shape import BothWays, LayerShape
from planner.estimate.machine import Machine
from planner.formulas import flops, kernels
from planner.ledger import Array

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
# eager attention scales, masks and normalises in kernels of their own: so many times the traffic
# and the kernels of a fused softmax; own count
_EAGER = 2.0


def core_s(shape: LayerShape, m: Machine) -> BothWays[Array]:
    """Seconds of the core."""
    found = _flash_s(shape, m) if shape.plan.flash_attention else _scores_s(shape, m)
    if not np.any(shape.cp > 1):
        return found
    merged = context.merge_s(shape, m)
    return BothWays(found.forward + merged.forward, found.backward + merged.backward)


def _flash_s(shape: LayerShape, m: Machine) -> BothWays[Array]:
    """One fused kernel, over the pairs that the causal mask and packed documents leave."""
    flop = shape.causal_flop

    def one(flop: Array, launches: float, frac: Array, half: Array) -> Array:
        short = 1.0 if "attention_shape" in m.without else _shape_frac(shape, m, half)
        return kernels.flash_attention_s(
            flop,
            launches,
            rate_flop_per_s=m.wide_rate * m.sustained_clock,
            attention_frac=frac * short,
            gap_s=m.kernel_gap,
        )

    forward = m.attention_forward * m.attention_version_forward
    backward = m.attention_backward * m.attention_version_backward
    return BothWays(
        one(flop, _FLASH_KERNELS.forward, forward, m.attention_half_forward),
        one(
            _FLASH_BACKWARD_FLOP * flop,
            _FLASH_KERNELS.backward,
            backward,
            m.attention_half_backward,
        ),
    )


def _shape_frac(shape: LayerShape, m: Machine, half: Array) -> Array:
    """Share of the attention rate that sequence, window and head width leave: the mean over layers,
    weighted by time. half: tokens at which half of the rate is reached; 0: as on an A100."""
    model = shape.plan.model
    s = float(shape.plan.training.seq_len) * uneven.attended_frac(shape.plan)
    width, block = float(flops.head_widths(model)[1]), context.block_tokens(shape, s)
    share, window = flops.windowed_share(model), min(float(model.attention_window or s), s)
    measured = (half, m.attention_width_exponent)
    short = share * flops.causal_pairs(s, window)
    long = (1 - share) * flops.causal_pairs(s, s)
    slow = short / kernels.attention_shape_frac(np.minimum(window, block), width, *measured)
    slow = slow + long / kernels.attention_shape_frac(block, width, *measured)
    return (short + long) / slow


def _scores_s(shape: LayerShape, m: Machine) -> BothWays[Array]:
    """GEMMs over the whole score matrix, and a softmax that reads and writes it."""
    plan = shape.plan
    s, qk = float(plan.training.seq_len), float(flops.head_widths(plan.model)[0])
    batch = shape.micro_batch * plan.model.heads / shape.tp
    rows = s / shape.cp
    width = plan.training.element_bytes
    alignment = kernels.alignment_frac(s, qk, width, m.vector_rate / m.wide_rate)
    gemms = gemm_s(plan, m, rows, s, qk, batch, alignment=alignment) + gemm_s(
        plan, m, rows, qk, s, batch, alignment=alignment
    )
    slower = _EAGER if plan.attention == "eager" else 1.0
    scores = batch * s * s / shape.cp

    def softmax(bytes_each: float) -> Array:
        return stream_s(plan, m, bytes_each * slower * scores, _SOFTMAX_KERNELS * slower)

    return BothWays(
        gemms + softmax(_SCORES.forward), _BACKWARD_GEMMS * gemms + softmax(_SCORES.backward)
    )
