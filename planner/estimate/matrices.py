"""The weight matrices of a layer as a rank holds them, for optimizers that work on matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.estimate.trained import kind_adapters
from planner.formulas.experts import tensor_of
from planner.formulas.params import stream_of
from planner.ledger import Array
from planner.specs.capabilities import has
from planner.specs.columns import Columns
from planner.specs.layers import layers_of
from planner.specs.parts import Moe, Product
from planner.specs.plan import Plan


@dataclass(frozen=True)
class Matrix:
    """Weights of one shape. Tensor parallelism cuts a matrix into blocks, each of which is a matrix
    of its own (Megatron-LM, muon_tp_mode: blockwise); queries, keys and values are apart even where
    one GEMM computes them (muon_split_qkv)."""

    rows: Array
    columns: Array
    count: Array  # of a mean layer on one rank
    routed: bool = False  # of routed experts
    name: str = ""  # of the product that it is in

    @property
    def elements(self) -> Array:
        """Elements of a mean layer on one rank."""
        return self.count * self.rows * self.columns


def layer_matrices(plan: Plan, tp: Array, ep: Array) -> list[Matrix]:
    """Matrices of a mean layer on one rank that are trained, routed experts among them."""
    if plan.training.adapter is not None:
        return list(_of_adapters(plan, tp))
    return held_matrices(plan, tp, ep)


def held_matrices(plan: Plan, tp: Array, ep: Array) -> list[Matrix]:
    """Matrices of a mean layer on one rank, trained or not, adapters apart."""
    model, layers = plan.model, layers_of(plan.model)
    matrices: list[Matrix] = []
    for kind, count in zip(layers.kinds, layers.counts, strict=True):
        stream, share = stream_of(model, kind), count / model.layers
        for part in kind.parts:
            matrices += [_matrix(plan, tp, ep, each, share) for each in part.products(stream)]
            if isinstance(part, Moe):
                matrices += _experts(plan, tp, ep, part, share)
    return matrices


def _of_adapters(plan: Plan, tp: Array) -> Iterator[Matrix]:
    """A and B of every adapted matrix, without tensor parallelism."""
    spec, layers = plan.training.adapter, layers_of(plan.model)
    assert spec is not None
    for kind, count in zip(layers.kinds, layers.counts, strict=True):
        for matrix in kind_adapters(plan, kind):
            times = (
                spec.resident * matrix.copies * matrix.sides * count / plan.model.layers + 0.0 * tp
            )
            for rows, columns in ((matrix.k, spec.rank), (spec.rank, matrix.n)):
                yield Matrix(rows + 0.0 * tp, columns + 0.0 * tp, times, bool(matrix.experts))


def _matrix(plan: Plan, tp: Array, ep: Array, product: Product, share: float) -> Matrix:
    if product.routed:
        tp, share = tensor_of(plan, tp), share * product.groups / ep
    joined = product.join == "gate" and plan.stack.fusion.joint_gate
    columns = product.n.local(tp) if product.split == "columns" else product.n.elements + 0.0 * tp
    return Matrix(
        rows=product.k / tp if product.split == "rows" else product.k + 0.0 * tp,
        columns=columns * (product.times if joined else 1),
        count=share * (1.0 if joined else product.times - product.shared) + 0.0 * tp,
        routed=product.routed,
        name=product.name,
    )


def _experts(plan: Plan, tp: Array, ep: Array, moe: Moe, share: float) -> Iterator[Matrix]:
    read, width = float(moe.read(plan.model.hidden)), moe.ffn_hidden / tensor_of(plan, tp)
    local = share * moe.experts / ep
    joined = plan.stack.fusion.joint_gate
    inputs, times = (moe.inputs, 1.0) if joined else (1, float(moe.inputs))
    yield Matrix(read + 0.0 * width, inputs * width, times * local, routed=True)
    yield Matrix(width, read + 0.0 * width, local, routed=True)


_UPDATE_BYTES = 2.0  # of an element of a momentum that is gathered: bf16


def gathered_bytes(plan: Plan, c: Columns, elements: Array) -> Array:
    """Bytes of a whole matrix that a rank gathers before it updates its shard of it."""
    if not has(plan.stack, "whole_matrices", "gathered"):
        return 0.0 * elements
    return np.where((c.zero >= 1) & (c.shards > 1), _UPDATE_BYTES * elements, 0.0)


def largest(values: list[Array]) -> Array:
    """The largest of them, element by element."""
    out = values[0]
    for value in values[1:]:
        out = np.maximum(out, value)
    return out
