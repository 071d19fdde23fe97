"""GEMMs of a layer: their shapes, and their seconds forward and backward."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from planner.estimate import mechanisms
from planner.estimate.layer.convolution import convolution_s
from planner.estimate.layer.gemm import UNALIGNED_WEIGHT, Gemm, gemm_s
from planner.estimate.layer.operators import copy_s
from planner.estimate.layer.shape import BothWays, LayerShape
from planner.estimate.machine import Machine
from planner.estimate.machine.kernels import loops_experts
from planner.formulas import casts, kernels
from planner.formulas.params import stream_of
from planner.ledger import Array, is_recording
from planner.specs.parts import Moe, Product
from planner.specs.plan import Plan
from planner.specs.precision import Recipe

_Gemms = tuple[Product, ...] | Moe  # what is computed as one: products, or routed experts
# bytes per weight to read and to write an fp32 gradient that a GEMM accumulates into
_ACCUMULATED = 8.0
_READ = 2.0  # bytes of an element in 16 bit, from which operands are cast


def weight_gemms(shape: LayerShape) -> Iterator[Gemm]:
    """The GEMMs of a mean layer, in the order of the forward pass."""
    stream, joins = stream_of(shape.plan.model), _joins(shape.plan)
    counts: dict[tuple[_Gemms, float], int] = {}
    for part, count in shape.mix.parts:
        trained = shape.plan.gradient_of(part.name)
        if isinstance(part, Moe):
            counts[part, trained] = counts.get((part, trained), 0) + count
        for products in _fused(part.products(stream), joins):
            counts[products, trained] = counts.get((products, trained), 0) + count
    for (gemms, trained), count in counts.items():
        share = count / shape.mix.layers
        if isinstance(gemms, Moe):
            yield from _experts(shape, gemms, share, trained)
        else:
            yield _gemm(shape, gemms, joins[gemms[0].join], share, trained)


def _joins(plan: Plan) -> dict[str, bool]:
    """Groups of products that the stack, or the model's published code, computes as one."""
    qkv, gate = plan.joint
    return {"always": True, "never": False, "qkv": qkv, "gate": gate}


def _fused(products: Iterator[Product], joins: dict[str, bool]) -> Iterator[tuple[Product, ...]]:
    """Products by the GEMM that they are part of."""
    for _, group in itertools.groupby(products, key=lambda product: product.group or product.name):
        members = tuple(group)
        if joins[members[0].join]:
            yield members
        else:
            yield from ((product,) for product in members)


def _gemm(
    shape: LayerShape, products: tuple[Product, ...], joined: bool, share: float, trained: float
) -> Gemm:
    """One GEMM of products that read the same, their columns side by side."""
    first, t = products[0], shape.tp
    if first.routed:
        return _routed(shape, first, share, trained)
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
        input_gradient=first.input_gradient,
        weight_gradient=trained,
    )


def _routed(shape: LayerShape, product: Product, share: float, trained: float) -> Gemm:
    """One GEMM of the experts of a traced block."""
    split, t = product.split, shape.etp
    return _of_experts(
        shape,
        product.name,
        (
            product.n.elements / (t if split == "columns" else 1.0 + 0.0 * t),
            product.k / (t if split == "rows" else 1.0 + 0.0 * t),
        ),
        share * product.times,
        trained,
        product.looped,
    )


def _read(shape: LayerShape, product: Product) -> Array | None:
    """Elements of a convolution's input."""
    if product.pixels is not None:
        return product.pixels.at(shape.micro_batch, shape.tokens / shape.micro_batch)
    return None if product.read is None else shape.micro_batch * float(product.read)


def _experts(shape: LayerShape, moe: Moe, share: float, trained: float) -> Iterator[Gemm]:
    h, f = float(moe.read(shape.plan.model.hidden)), moe.ffn_hidden / shape.etp
    yield _of_experts(shape, "expert_in", (moe.inputs * f, h), share, trained)
    yield _of_experts(shape, "expert_out", (h, f), share, trained)


def _of_experts(
    shape: LayerShape,
    name: str,
    width: tuple[Array, Array],
    share: float,
    trained: float,
    looped: bool = False,
) -> Gemm:
    """One GEMM of all experts of a rank, side by side or in a loop. width: columns, and the inner
    width."""
    local = shape.experts
    rows = np.maximum(shape.routed / local, 1.0)
    at_once, times = local, share
    if looped or loops_experts(shape.plan):
        at_once, times = 1.0 + 0.0 * local, share * local
    return Gemm(name, rows, *width, at_once, per_layer=times, routed=True, weight_gradient=trained)


def weight_gemms_s(plan: Plan, m: Machine, p: Gemm) -> BothWays[Array]:
    """Seconds of a GEMM forward, of its dgrad and of its wgrad."""
    if p.read is not None:
        return convolution_s(plan, m, p)
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

    def pass_s(rows: Array, columns: Array, inner: Array, extra_bytes: Array) -> Array:
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

    passes = [(p.m, p.k, p.n, 0.0), (p.m, p.n, p.k, 0.0)]
    if p.weight_gradient:
        passes.insert(1, (p.k, p.n, p.m, accumulated))
    if is_recording():
        seconds = [pass_s(*each) for each in passes]
    else:  # small tables are bound by the overhead of calls: a single call times all passes
        shape = np.broadcast_shapes(*(np.shape(size) for each in passes for size in each))
        sizes = np.empty((4, len(passes), *shape))
        for i, each in enumerate(passes):
            for table, size in zip(sizes, each, strict=True):
                table[i] = size
        seconds = list(pass_s(*sizes))
    gradients, forward = seconds[0], seconds[-1]
    if p.weight_gradient:
        gradients = gradients + p.weight_gradient * seconds[1]
    return BothWays(forward, gradients)


def casts_s(plan: Plan, m: Machine, p: Gemm) -> BothWays[Array]:
    """Seconds to cast the input of a GEMM forward, and the gradient of its output backward."""
    recipe = plan.recipe if p.low and p.read is None else None
    if recipe is None:
        return BothWays(0.0 * p.m, 0.0 * p.m)
    share = (m.expert_traffic if p.routed else 1.0) * (
        1 - plan.training.wide_layers / plan.model.layers
    )

    def cast_s(width: Array, written: bool) -> Array:
        each = m.cast_bytes - float(written) * _READ * recipe.reads
        return share * kernels.elementwise_s(
            each * p.batch * p.m * width,
            recipe.kernels,
            memory_bytes_per_s=m.memory_bandwidth,
            elementwise_frac=m.stream_frac,
            gap_s=m.kernel_gap,
            limit_bytes_per_s=m.cast_limit,
        )

    # the activation writes what the second GEMM of an MLP reads, and the gradients of the first
    inside = plan.casts_in_activation
    backward = cast_s(p.n, inside and p.name == "mlp_in")
    if mechanisms.transposes_again(plan):
        each = casts.operand_bytes(recipe.element, recipe.scale, recipe.block)
        weights = share * p.batch * p.n * p.k
        backward = backward + copy_s(m, casts.transposed_bytes(weights, each))
    return BothWays(cast_s(p.k, inside and p.name == "mlp_out"), backward)
