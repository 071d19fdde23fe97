"""Quantised frozen weights: bytes per element of a layer, and the 16-bit copy made of a matrix
while a GEMM reads it."""

from __future__ import annotations

import numpy as np

from planner.estimate.matrices import Matrix, held_matrices, largest
from planner.estimate.states import RankParameters
from planner.ledger import Array, total
from planner.specs.columns import Columns
from planner.specs.plan import Plan
from planner.specs.quantised import BASES, KEPT_WIDE, BaseFormat


def base_of(plan: Plan) -> BaseFormat | None:
    """Format of quantised frozen matrices; None: they are not quantised."""
    name = plan.training.base_precision
    return None if name is None else BASES[name]


def element_bytes(
    plan: Plan, c: Columns, every: RankParameters, wide: float
) -> tuple[Array, Array]:
    """Bytes per element of a mean layer, and of its routed experts. wide: bytes per unquantised
    weight."""
    base, nothing = base_of(plan), 0.0 * c.tp
    if base is None:
        return wide + nothing, wide + nothing
    matrices = _quantised(plan, c)

    def mean(routed: bool, elements: Array) -> Array:
        saved = nothing
        for matrix in matrices:
            if matrix.routed is routed:
                kept = base.matrix_bytes(matrix.rows, matrix.columns, plan.training.base_group)
                saved = saved + matrix.count * (wide * matrix.rows * matrix.columns - kept)
        return wide - saved / np.maximum(elements, 1.0)

    return mean(False, total(every.layer)), mean(True, every.experts)


def saved_per_layer(plan: Plan, c: Columns, every: RankParameters, wide: float) -> Array:
    """Bytes that a mean layer does not move where ranks gather it: shards travel in their stored
    format; replicated codes do not travel."""
    if base_of(plan) is None:
        return 0.0 * c.tp
    if stays_whole(plan):
        return sum((wide * m.count * m.rows * m.columns for m in _quantised(plan, c)), 0.0 * c.tp)
    dense, experts = element_bytes(plan, c, every, wide)
    return (wide - dense) * total(every.layer) + (wide - experts) * every.experts


def stays_whole(plan: Plan) -> bool:
    """Whether sharding leaves the quantised matrices whole on every rank."""
    base = base_of(plan)
    return base is not None and base.buffers and not plan.stack.state.shards_buffers


def codes(plan: Plan, c: Columns) -> tuple[Array, Array]:
    """Bytes of codes and scales of a mean layer, and of its routed experts."""
    base, sums = base_of(plan), [0.0 * c.tp, 0.0 * c.tp]
    if base is not None:
        for m in _quantised(plan, c):
            kept = base.matrix_bytes(m.rows, m.columns, plan.training.base_group)
            sums[m.routed] = sums[m.routed] + m.count * kept
    return sums[0], sums[1]


def made_bytes(plan: Plan, c: Columns) -> Array:
    """Dequantised copy of the largest matrix, for one GEMM, or what a chain of operators holds to
    make it; where forward multiplies codes, backward dequantises to the type of its input
    (MatMul8bitLt.backward of bitsandbytes: CB.to(ctx.dtype_A))."""
    base = base_of(plan)
    if base is None:
        return 0.0 * c.tp
    each = plan.stream_bytes if base.multiplied else plan.training.element_bytes
    each = base.chain_holds if plan.decodes_in_chain else each
    return largest([each * matrix.rows * matrix.columns for matrix in _quantised(plan, c)])


def _quantised(plan: Plan, c: Columns) -> list[Matrix]:
    return [matrix for matrix in held_matrices(plan, c.tp, c.ep) if matrix.name not in KEPT_WIDE]
