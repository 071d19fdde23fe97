"""Time of low-rank adapters beside the frozen matrices of a layer: thin GEMMs, and the operators
between them.

PEFT 0.21 (lora/layer.py, lora/dora.py): result + B(A(dropout(x))) * scaling, x first cast to the
type of A, which autocast casts back for the GEMM. Fused kernels (fms-acceleration's, Unsloth's)
add onto the result inside the GEMMs; what they are given is cast and dropped before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.estimate.layer.gemm import gemm_s
from planner.estimate.layer.matmul import weight_gemms
from planner.estimate.layer.operators import copy_s, moved_s, stream_ratio, stream_s
from planner.estimate.layer.shape import BothWays, LayerShape
from planner.estimate.machine import Machine
from planner.estimate.machine.kernels import loops_experts
from planner.formulas.params import stream_of
from planner.ledger import Array
from planner.specs.adapters import AdapterSpec, Matrix, adapted
from planner.specs.parts import Moe
from planner.specs.plan import Plan
from planner.specs.quantised import BASES, CHAIN_OPERATORS, KEPT_WIDE

# bytes moved per element of the input that A reads, in 16 bit: to fp32 and back where adapters are
# of that type; dropped, with a mask of a byte each, in the type of the adapter
_CASTS = BothWays(12.0, 12.0)
_CAST_BACK = 0.5  # of these, only to 16 bit
_DROPPED, _DROPPED_FP32 = BothWays(5.0, 5.0), BothWays(9.0, 9.0)
_INPUT_SUM = 6.0  # backward: the adapter's input gradient, added to the matrix's
# of the output: scaled (4), and added to the matrix's output (6); backward scaled
_OUTPUT = BothWays(10.0, 4.0)
# of DoRA per output: (m - 1) y + m s z of the outputs of matrix and adapter; backward their
# gradients, and the gradient of m, which reads both
_MAGNITUDES = BothWays(14.0, 16.0)
# per element of the matrix, forward: B A scaled, added to it, and the norm of every column
_COLUMN_NORM = 16.0
# operators of an adapter that the CPU issues: casts of input, A and B, dropout, two GEMMs, scale
# and sum; backward twice the GEMMs, and the sum of gradients. Fused: only GEMMs and dropout
_ISSUED, _ISSUED_FUSED = BothWays(9.0, 14.0), BothWays(2.0, 4.0)
# an expert's slice of a stacked tensor has a gradient of the whole tensor's size: zeros, a part
# written, and the sum with the other experts' gradient (torch's select_backward, slice_backward)
_LOOPED, _OF_WHOLE = 3.0, 2.0  # operators, and of A and of B
_WHOLE_PASSES = 4.0  # zeros, two read for a sum, and that
_ISSUED_DORA = BothWays(10.0, 8.0)
_WEIGHTS = 2.0  # of an adapter: A and B


@dataclass(frozen=True)
class AdapterWork:
    """Work of adapters in a mean layer and micro-batch."""

    gemms: BothWays[Array]
    operators: BothWays[Array]  # seconds of those bound by memory
    flop: Array  # forward
    issued: BothWays[Array]
    weights: Array  # of all adapters, each with a gradient


@dataclass(frozen=True)
class _Local:
    """An adapter as a rank computes it."""

    rows: Array
    k: Array
    n: Array
    rank: Array
    batch: Array
    times: Array  # of a mean layer
    stacked: Array  # experts in a loop over them; 0: no loop


def adapter_work(shape: LayerShape, m: Machine) -> AdapterWork | None:
    """Time of the adapters of a layer; None without adapters."""
    spec, nothing = shape.plan.training.adapter, 0.0 * shape.tokens
    if spec is None:
        return None
    gemms, light = BothWays(nothing, nothing), BothWays(nothing, nothing)
    flop, issued = nothing, BothWays(nothing, nothing)
    adapters = tuple(_local(shape, spec))
    for adapter in adapters:
        gemms = _sum(gemms, _gemms_s(shape.plan, m, adapter, spec), adapter.times)
        light = _sum(light, _operators_s(shape.plan, m, adapter, spec), adapter.times)
        flop = flop + adapter.times * 2.0 * adapter.batch * adapter.rows * adapter.rank * (
            adapter.k + adapter.n
        )
        issued = _sum(issued, _issued(shape.plan, spec, adapter), adapter.times)
    if any(np.any(adapter.stacked > 0) for adapter in adapters):
        light = BothWays(light.forward, light.backward + _sliced_s(shape, m))
    weights = sum((_WEIGHTS * a.times / np.maximum(a.stacked, 1.0) for a in adapters), nothing)
    return AdapterWork(gemms, light, flop, issued, weights)


def shared_matrices(shape: LayerShape) -> Array:
    """Adapted matrices of a mean layer times the adapters of each; 0 with a single adapter."""
    spec, nothing = shape.plan.training.adapter, 0.0 * shape.tokens
    if spec is None or spec.resident == 1:
        return nothing
    return spec.resident * sum(
        (adapter.times / np.maximum(adapter.stacked, 1.0) for adapter in _local(shape, spec)),
        nothing,
    )


def _sum(total: BothWays[Array], more: BothWays[Array], times: Array) -> BothWays[Array]:
    return BothWays(total.forward + times * more.forward, total.backward + times * more.backward)


def _local(shape: LayerShape, spec: AdapterSpec) -> Iterator[_Local]:
    stream, joint = stream_of(shape.plan.model), shape.plan.joint
    ones, t = 1.0 + 0.0 * shape.tokens, shape.tp
    for part, count in shape.mix.parts:
        for matrix in adapted(part, stream, spec, joint):
            times, rank = ones * count / shape.mix.layers, ones * matrix.sides * spec.rank
            if matrix.experts:
                rows, sides = shape.routed / shape.experts, _sides(matrix, shape.etp)
                stacked = shape.experts * loops_experts(shape.plan)
                each = np.maximum(stacked, 1.0)
                yield _Local(rows, *sides, rank, shape.experts / each, times * each, stacked)
            else:
                rows = shape.tokens
                if matrix.rows is not None:
                    rows = matrix.rows.at(shape.micro_batch, rows / shape.micro_batch)
                yield _Local(rows, *_sides(matrix, t), rank, ones, times, 0.0 * ones)


def _sides(matrix: Matrix, ranks: Array) -> tuple[Array, Array]:
    """Rows and columns that a rank computes: it has a share of the columns of the matrix, and as
    large a share of the products with A."""
    return matrix.k / ranks, matrix.n / ranks


def _gemms_s(plan: Plan, m: Machine, adapter: _Local, spec: AdapterSpec) -> BothWays[Array]:
    rows, k, n, r = adapter.rows, adapter.k, adapter.n, adapter.rank

    def gemm(rows: Array, columns: Array, inner: Array) -> Array:
        return gemm_s(plan, m, rows, columns, inner, adapter.batch)

    forward = gemm(rows, r, k) + gemm(rows, n, r)
    backward = gemm(rows, r, n) + gemm(r, n, rows) + gemm(rows, k, r) + gemm(k, r, rows)
    if spec.method == "dora":  # B A, of an identity as input
        forward = forward + gemm(k, r, k) + gemm(k, n, r)
    return BothWays(forward, backward)


def _operators_s(plan: Plan, m: Machine, adapter: _Local, spec: AdapterSpec) -> BothWays[Array]:
    inputs, outputs = (
        adapter.batch * adapter.rows * adapter.k,
        adapter.batch * adapter.rows * adapter.n,
    )
    wide = _is_wide(plan, spec)
    # of fp32 values, only the cast back to 16 bit
    part = _CAST_BACK if stream_ratio(plan) > 1 else 1.0
    dropped = _DROPPED_FP32 if wide else _DROPPED
    drops, casts = float(spec.dropout > 0), part * wide
    dora, apart = float(spec.method == "dora"), float(not plan.fused_adapters)
    weights = dora * _COLUMN_NORM * adapter.batch * adapter.k * adapter.n

    def moved(of_input: float, of_output: float) -> Array:
        return stream_s(plan, m, inputs * of_input + outputs * of_output, 0.0)

    return BothWays(
        moved(
            casts * _CASTS.forward + drops * dropped.forward,
            apart * _OUTPUT.forward + dora * _MAGNITUDES.forward,
        )
        + copy_s(m, weights),
        moved(
            casts * _CASTS.backward + drops * dropped.backward + apart * _INPUT_SUM,
            apart * _OUTPUT.backward + dora * _MAGNITUDES.backward,
        )
        + copy_s(m, _WHOLE_PASSES * plan.training.element_bytes * _whole_elements(adapter)),
    )


def _whole_elements(adapter: _Local) -> Array:
    """Elements of all experts whose gradients backward makes for one: A and B of its adapter."""
    return adapter.stacked * adapter.rank * (adapter.k + adapter.n)


def _sliced_s(shape: LayerShape, m: Machine) -> Array:
    """Seconds in which a loop over experts makes and accumulates gradients of the tensors that all
    experts read, once per expert."""
    passes = _WHOLE_PASSES * shape.plan.training.element_bytes
    read = sum(
        (part.read(shape.plan.model.hidden) * count / shape.mix.layers)
        for part, count in shape.mix.parts
        if isinstance(part, Moe)
    )
    return copy_s(m, passes * shape.experts * shape.routed * read)


def _is_wide(plan: Plan, spec: AdapterSpec) -> bool:
    """Whether adapters are fp32 where kernels work in 16 bit."""
    return spec.precision == "fp32" and plan.training.mixed_precision


def _issued(plan: Plan, spec: AdapterSpec, adapter: _Local) -> BothWays[Array]:
    fused = plan.fused_adapters
    issued = _ISSUED_FUSED if fused else _ISSUED
    casts, dora = 4.0 * (not fused and not _is_wide(plan, spec)), spec.method == "dora"
    return BothWays(
        issued.forward - casts + (spec.dropout > 0) - (not fused) + dora * _ISSUED_DORA.forward,
        issued.backward
        - casts
        + (spec.dropout > 0)
        - (not fused)
        + dora * _ISSUED_DORA.backward
        + _OF_WHOLE * _LOOPED * (adapter.stacked > 0),
    )


# between fp32 and 16 bit, per element that a matrix reads and writes
_RETURNED = 6.0
# products that read what attention gives, which is in 16 bit
_IN_16_BIT = ("attention_out", "cross_out")
# operators that do so, of a matrix
RETURNED_OPERATORS = 2.0


def returned_s(shape: LayerShape, m: Machine) -> Array | None:
    """Seconds of casts around matrices that return the type of their input: inputs to 16 bit,
    outputs back, and the same for gradients. None where activations are in 16 bit."""
    if stream_ratio(shape.plan) == 1:
        return None
    elements = 0.0 * shape.tokens
    for p in weight_gemms(shape):
        if p.name not in (*KEPT_WIDE, *_IN_16_BIT):
            elements = elements + p.per_layer * p.batch * p.m * (p.k + p.n)
    return stream_s(shape.plan, m, _RETURNED * elements, 0.0)


def dequantised_s(shape: LayerShape, m: Machine) -> BothWays[Array] | None:
    """Seconds in which frozen matrices are made of their codes, for every GEMM of either pass that
    reads them: codes and scales are read, weights written; or by a chain of operators
    in forward. None where they are as kernels read."""
    training = shape.plan.training
    if training.base_precision is None:
        return None
    base, moved, matrices = BASES[training.base_precision], 0.0 * shape.tokens, 0.0
    chained = base.chained if shape.plan.decodes_in_chain else 0.0
    for p in weight_gemms(shape):
        if p.name not in KEPT_WIDE:
            codes = base.matrix_bytes(p.k, p.n, training.base_group)
            written = training.element_bytes * p.k * p.n
            each = chained * p.k * p.n if chained else codes + written
            moved, matrices = moved + p.per_layer * p.batch * each, matrices + p.per_layer
    if chained:
        return BothWays(moved_s(m, moved, CHAIN_OPERATORS * matrices), 0.0 * moved)
    once = copy_s(m, moved)
    return BothWays(once * (not base.multiplied), once)


def decoding_operators(shape: LayerShape) -> BothWays[Array]:
    """Operators that the CPU issues to make frozen matrices of their codes."""
    name, matrices = shape.plan.training.base_precision, np.zeros(1)
    if name is None or BASES[name].multiplied:
        return BothWays(matrices, matrices)
    for p in weight_gemms(shape):
        if p.name not in KEPT_WIDE:
            matrices = matrices + p.per_layer
    if shape.plan.decodes_in_chain:
        return BothWays(CHAIN_OPERATORS * matrices, 0.0 * matrices)
    each = BASES[name].operators * matrices
    return BothWays(each, each)
