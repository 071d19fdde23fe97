"""GEMMs of a layer: their shapes, and their seconds forward and backward."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.estimate.layer.shape import BothWays, LayerShape
from planner.estimate.machine import Machine
from planner.estimate.machine.kernels import loops_experts
from planner.formulas import casts, kernels
from planner.formulas.params import stream_of
from planner.ledger import Array
from planner.specs.parts import Moe, Product
from planner.specs.plan import Plan
from planner.specs.precision import Recipe

# share of the matrix rate that the GEMMs of a weight keep when a width is no multiple of 16 B: a
# vocabulary of 50257 in place of 50304 costs nanoGPT's 124M model about a quarter more time
# (Karpathy, 2023-02-03, recalled), the aligned head being a quarter of it; an RTX 3090 loses 4 %
# (RobertRiachi/nanoPALM#6)
UNALIGNED_WEIGHT = 0.5
_Gemms = tuple[Product, ...] | Moe  # what is computed as one: products, or routed experts
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
    per_layer: Array = 1.0  # how many a mean layer has, over dense and expert layers
    low: bool = True  # in 8 or 4 bit where the recipe is
    routed: bool = False  # of routed experts
    taps: float = 1.0  # of a convolution, pixels of its kernel
    read: Array | None = None  # elements of its input, where they are not m x k


def weight_gemms(shape: LayerShape) -> Iterator[Gemm]:
    """The GEMMs of a mean layer, in the order of the forward pass."""
    stream, joins = stream_of(shape.plan.model), _joins(shape.plan)
    counts: dict[_Gemms, int] = {}
    for part, count in shape.mix.parts:
        if isinstance(part, Moe):
            counts[part] = counts.get(part, 0) + count
        for products in _fused(part.products(stream), joins):
            counts[products] = counts.get(products, 0) + count
    for gemms, count in counts.items():
        share = count / shape.mix.layers
        if isinstance(gemms, Moe):
            yield from _experts(shape, gemms, share)
        else:
            yield _gemm(shape, gemms, joins[gemms[0].join], share)


def _joins(plan: Plan) -> dict[str, bool]:
    """Groups of products that the stack computes as one."""
    fusion = plan.stack.fusion
    return {"always": True, "never": False, "qkv": fusion.joint_qkv, "gate": fusion.joint_gate}


def _fused(products: Iterator[Product], joins: dict[str, bool]) -> Iterator[tuple[Product, ...]]:
    """Products by the GEMM that they are part of."""
    for _, group in itertools.groupby(products, key=lambda product: product.group or product.name):
        members = tuple(group)
        if joins[members[0].join]:
            yield members
        else:
            yield from ((product,) for product in members)


def _gemm(shape: LayerShape, products: tuple[Product, ...], joined: bool, share: float) -> Gemm:
    """One GEMM of products that read the same, their columns side by side."""
    first, t = products[0], shape.tp
    columns = sum(p.n.local(t) * (p.times if joined else 1) for p in products)
    tokens = shape.tokens
    if first.rows is not None:
        tokens = first.rows.at(shape.micro_batch, tokens / shape.micro_batch)
    elif first.source_tokens is not None:
        tokens = shape.micro_batch * float(first.source_tokens) / shape.cp
    return Gemm(
        name=first.group if joined and first.group else first.name,
        m=tokens,
        n=columns if first.split == "columns" else float(first.n.elements) + 0 * t,
        k=first.k / t if first.split == "rows" else float(first.k),
        batch=float(first.groups),
        per_layer=share * (1 if joined else first.times),
        low=first.low,
        taps=float(first.taps),
        read=_read(shape, first),
    )


def _read(shape: LayerShape, product: Product) -> Array | None:
    """Elements of a convolution's input."""
    if product.pixels is not None:
        return product.pixels.at(shape.micro_batch, shape.tokens / shape.micro_batch)
    return None if product.read is None else shape.micro_batch * float(product.read)


def _experts(shape: LayerShape, moe: Moe, share: float) -> Iterator[Gemm]:
    local = shape.experts
    rows = np.maximum(shape.routed / local, 1.0)
    h, f = float(moe.read(shape.plan.model.hidden)), moe.ffn_hidden / shape.etp
    at_once, times = local, share
    if loops_experts(shape.plan):
        at_once, times = 1.0 + 0.0 * local, share * local
    yield Gemm("expert_in", rows, moe.inputs * f, h, at_once, per_layer=times, routed=True)
    yield Gemm("expert_out", rows, h, f, at_once, per_layer=times, routed=True)


def weight_gemms_s(plan: Plan, m: Machine, p: Gemm) -> BothWays[Array]:
    """Seconds of a GEMM forward, of its dgrad and of its wgrad."""
    if p.read is not None:
        return _convolution_s(plan, m, p)
    recipe = plan.recipe if p.low else None
    wide = _weight_gemms_s(plan, m, p, None)
    if recipe is None:
        return wide
    low = _weight_gemms_s(plan, m, p, recipe)
    share = plan.training.wide_layers / plan.model.layers
    return BothWays(
        (1 - share) * low.forward + share * wide.forward,
        (1 - share) * low.backward + share * wide.backward,
    )


def _weight_gemms_s(plan: Plan, m: Machine, p: Gemm, recipe: Recipe | None) -> BothWays[Array]:
    fused = plan.stack.fusion.gradient_accumulation_fp32
    accumulated = (_ACCUMULATED if fused else 0.0) * p.n * p.k * p.batch
    width = recipe.element if recipe else plan.training.element_bytes
    alignment = kernels.alignment_frac(p.n, p.k, width, UNALIGNED_WEIGHT)

    def pass_s(rows: Array, columns: Array, inner: Array, extra_bytes: Array = 0.0) -> Array:
        return gemm_s(
            plan,
            m,
            rows,
            columns,
            inner,
            p.batch,
            recipe=recipe,
            extra_bytes=extra_bytes,
            alignment=alignment,
        )

    gradients = pass_s(p.m, p.k, p.n)
    if plan.gradients_frac:  # of the weight
        gradients = gradients + plan.gradients_frac * pass_s(p.k, p.n, p.m, accumulated)
    return BothWays(pass_s(p.m, p.n, p.k), gradients)


def _convolution_s(plan: Plan, m: Machine, p: Gemm) -> BothWays[Array]:
    """Seconds of a convolution as the GEMMs over its windows (implicit GEMM, Chetlur et al. 2014,
    arXiv 1410.0759), which read a pixel once from memory, however many windows have it. The input
    gradient is a convolution of the output gradient."""
    width, read = plan.training.element_bytes, p.read
    windows = width * (read - p.m * p.k * p.batch)  # negative
    channels = p.k / p.taps
    alignment = kernels.alignment_frac(p.n, channels, width, UNALIGNED_WEIGHT)

    def pass_s(rows: Array, columns: Array, inner: Array, extra_bytes: Array) -> Array:
        sizes = rows, columns, inner, p.batch
        return gemm_s(plan, m, *sizes, extra_bytes=extra_bytes, alignment=alignment)

    again = width * (p.batch * p.m * (p.n * (1 - p.taps) - channels) + read)
    gradients = pass_s(p.m, channels, p.n * p.taps, again)
    if plan.gradients_frac:
        gradients = gradients + plan.gradients_frac * pass_s(p.k, p.n, p.m, windows)
    return BothWays(pass_s(p.m, p.n, p.k, windows), gradients)


def casts_s(plan: Plan, m: Machine, p: Gemm) -> BothWays[Array]:
    """Seconds to cast the input of a GEMM forward, and the gradient of its output backward."""
    recipe = plan.recipe if p.low and p.read is None else None
    if recipe is None:
        return BothWays(0.0 * p.m, 0.0 * p.m)
    share = (m.expert_traffic if p.routed else 1.0) * (
        1 - plan.training.wide_layers / plan.model.layers
    )

    def cast_s(width: Array) -> Array:
        return share * kernels.elementwise_s(
            m.cast_bytes * p.batch * p.m * width,
            recipe.kernels,
            memory_bytes_per_s=m.memory_bandwidth,
            elementwise_frac=m.stream_frac,
            gap_s=m.kernel_gap,
            limit_bytes_per_s=m.cast_limit,
        )

    return BothWays(cast_s(p.k), cast_s(p.n))


def gemm_s(
    plan: Plan,
    m: Machine,
    rows: Array,
    columns: Array,
    inner: Array,
    batch: Array = 1.0,
    *,
    recipe: Recipe | None = None,
    extra_bytes: Array = 0.0,
    alignment: Array = 1.0,
) -> Array:
    """Seconds of one GEMM on this machine, without the casts of its operands.

    alignment: share of the matrix rate that its widths leave.
    """
    if "alignment" in m.without:
        alignment = 1.0
    rate, width = m.wide_rate, plan.training.element_bytes
    if recipe is not None:
        rate = m.dense_rate * m.recipe_frac
        width = float(casts.operand_bytes(recipe.element, recipe.scale, recipe.block))
    sizes = rows, columns, inner, batch
    return gemm_at_rate_s(m, sizes, rate, width, extra_bytes=extra_bytes, alignment=alignment)


def gemm_at_rate_s(
    m: Machine,
    sizes: tuple[Array, Array, Array, Array],
    rate: Array,
    width: float,
    *,
    extra_bytes: Array = 0.0,
    alignment: Array = 1.0,
) -> Array:
    """Seconds of one GEMM. sizes: rows, columns, inner, batch; rate: FLOP/s at the full clock;
    width: bytes of an operand's element."""
    return kernels.gemm_s(
        *sizes,
        extra_bytes,
        width,
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
