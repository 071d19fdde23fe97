"""The GEMMs of a layer: which there are, and what each takes forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.estimate.layer.shape import BothWays, LayerShape
from planner.estimate.machine import Machine
from planner.formulas import kernels
from planner.ledger import Array
from planner.specs.model import LatentAttention
from planner.specs.plan import Plan

# share of the matrix rate that the GEMMs of a weight keep when a width is no multiple of 16 B: a
# vocabulary of 50257 in place of 50304 costs nanoGPT's 124M model about a quarter more time
# (Karpathy, 2023-02-03, recalled), the aligned head being a quarter of it; an RTX 3090 loses 4 %
# (RobertRiachi/nanoPALM#6)
UNALIGNED_WEIGHT = 0.5
_FP8_BYTES = 1.0  # of a GEMM operand in fp8
# bytes per weight to read and to write an fp32 gradient that a GEMM accumulates into
_ACCUMULATED = 8.0


@dataclass(frozen=True)
class Gemm:
    """One GEMM of a layer forward: (m x k) (k x n), the weight being k x n."""

    name: str
    m: Array  # tokens
    n: Array
    k: Array
    batch: Array = 1.0  # independent ones: local experts
    per_layer: float = 1.0  # how many a mean layer has, over dense and expert layers
    fp8: bool = True  # in fp8 where the recipe is
    routed: bool = False  # of routed experts


def weight_gemms(shape: LayerShape) -> Iterator[Gemm]:
    """The GEMMs of a mean layer, in the order of the forward pass."""
    model = shape.plan.model
    yield from _attention(shape) if model.latent is None else _latent(shape, model.latent)
    if model.expert_share < 1:
        yield from _dense_mlp(shape)
    if model.expert_share > 0:
        yield from _experts(shape)


def _attention(shape: LayerShape) -> Iterator[Gemm]:
    model, t, tokens = shape.plan.model, shape.tp, shape.tokens
    h, d = float(model.hidden), float(model.head_dim)
    # with fewer key/value heads than ranks, each rank computes a copy of one
    kv = np.maximum(model.kv_heads, t) * d / t
    if shape.plan.stack.fusion.joint_qkv:
        yield Gemm("qkv", tokens, model.heads * d / t + 2 * kv, h)
    else:
        yield Gemm("q", tokens, model.heads * d / t, h)
        yield Gemm("kv", tokens, kv, h, per_layer=2.0)
    yield Gemm("attention_out", tokens, h, model.heads * d / t)


def _latent(shape: LayerShape, mla: LatentAttention) -> Iterator[Gemm]:
    """Multi-head latent attention: queries, keys and values pass through narrow projections."""
    model, t, tokens = shape.plan.model, shape.tp, shape.tokens
    h = float(model.hidden)
    q_width = float(mla.nope_head_dim + mla.rope_head_dim)
    kv_down = float(mla.kv_rank + mla.rope_head_dim)
    if mla.query_rank is None:
        yield Gemm("q", tokens, model.heads * q_width / t, h)
        yield Gemm("kv_down", tokens, kv_down + 0 * t, h)
    else:
        yield Gemm("q_kv_down", tokens, mla.query_rank + kv_down + 0 * t, h)
        yield Gemm("q_up", tokens, model.heads * q_width / t, float(mla.query_rank))
    up = model.heads * float(mla.nope_head_dim + mla.value_head_dim)
    yield Gemm("kv_up", tokens, up / t, float(mla.kv_rank))
    yield Gemm("attention_out", tokens, h, model.heads * float(mla.value_head_dim) / t)


def _dense_mlp(shape: LayerShape) -> Iterator[Gemm]:
    model, tokens, h = shape.plan.model, shape.tokens, float(shape.plan.model.hidden)
    dense, f = 1 - model.expert_share, model.ffn_hidden / shape.tp
    apart = 1.0 if shape.plan.stack.fusion.joint_gate else float(model.mlp_inputs)
    yield Gemm("mlp_in", tokens, model.mlp_inputs / apart * f, h, per_layer=apart * dense)
    yield Gemm("mlp_out", tokens, h, f, per_layer=dense)


def _experts(shape: LayerShape) -> Iterator[Gemm]:
    model, t, tokens = shape.plan.model, shape.tp, shape.tokens
    assert model.moe is not None
    moe, share, h, local = model.moe, model.expert_share, float(model.hidden), shape.experts
    rows = np.maximum(shape.routed / local, 1.0)
    f = moe.ffn_hidden / shape.etp
    yield Gemm("expert_in", rows, model.mlp_inputs * f, h, local, per_layer=share, routed=True)
    yield Gemm("expert_out", rows, h, f, local, per_layer=share, routed=True)
    experts = float(moe.experts) + 0 * t
    yield Gemm("router", tokens, experts, h, per_layer=share, fp8=False)
    if moe.shared_ffn_hidden:
        f = moe.shared_ffn_hidden / t
        yield Gemm("shared_in", tokens, model.mlp_inputs * f, h, per_layer=share)
        yield Gemm("shared_out", tokens, h, f, per_layer=share)


def weight_gemms_s(plan: Plan, m: Machine, p: Gemm) -> BothWays[Array]:
    """Seconds of a GEMM forward, and of those of its input and of its weight gradient."""
    fp8 = p.fp8 and plan.training.precision == "fp8"
    fused = plan.stack.fusion.gradient_accumulation_fp32
    accumulated = (_ACCUMULATED if fused else 0.0) * p.n * p.k * p.batch
    width = _FP8_BYTES if fp8 else plan.training.element_bytes
    alignment = kernels.alignment_frac(p.n, p.k, width, UNALIGNED_WEIGHT)
    casts = m.expert_traffic if p.routed else 1.0

    def one(rows: Array, columns: Array, inner: Array, extra_bytes: Array = 0.0) -> Array:
        return gemm_s(
            plan,
            m,
            rows,
            columns,
            inner,
            p.batch,
            fp8=fp8,
            extra_bytes=extra_bytes,
            alignment=alignment,
            cast_share=casts,
        )

    return BothWays(one(p.m, p.n, p.k), one(p.m, p.k, p.n) + one(p.k, p.n, p.m, accumulated))


def gemm_s(
    plan: Plan,
    m: Machine,
    rows: Array,
    columns: Array,
    inner: Array,
    batch: Array = 1.0,
    *,
    fp8: bool = False,
    extra_bytes: Array = 0.0,
    alignment: Array = 1.0,
    cast_share: Array = 1.0,
) -> Array:
    """Seconds of one GEMM on this machine, with the casts of its operands to fp8.

    alignment: share of the matrix rate that its widths leave; cast_share: of the casts that is
    left.
    """
    if "alignment" in m.without:
        alignment = 1.0
    rate, cast_s = m.wide_rate, 0.0
    if fp8:
        rate = m.dense_rate * m.fp8_frac
        cast_s = kernels.elementwise_s(
            cast_share * m.cast_bytes * batch * rows * inner,
            0.0,
            memory_bytes_per_s=m.memory_bandwidth,
            elementwise_frac=m.elementwise_frac,
            gap_s=m.kernel_gap,
            limit_bytes_per_s=m.elementwise_limit,
        )
    return cast_s + kernels.gemm_s(
        rows,
        columns,
        inner,
        batch,
        extra_bytes,
        _FP8_BYTES if fp8 else plan.training.element_bytes,
        alignment,
        rate_flop_per_s=rate * m.sustained_clock,
        compute_units=m.compute_units,
        efficiency=m.gemm_efficiency,
        tile_exponent=m.gemm_tile_exponent,
        tile_overhead_s=m.gemm_tile_overhead,
        wave_softness=m.gemm_wave_softness,
        launch_s=m.gemm_launch,
        memory_bytes_per_s=m.memory_bandwidth,
        memory_frac=m.gemm_memory_frac,
    )
