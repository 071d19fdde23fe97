"""Time of optimizers that work on whole matrices: products, decompositions, launches, and the
gathering of sharded matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.estimate import communicate
from planner.estimate.layer.gemm import gemm_s
from planner.estimate.layer.operators import moved_s
from planner.estimate.layer.rows import combinations_of
from planner.estimate.machine import Machine
from planner.estimate.matrices import gathered_bytes, largest, layer_matrices
from planner.estimate.sync import Replicas
from planner.formulas import kernels
from planner.formulas.data_parallel import shard_count
from planner.formulas.optimizers import Gemm, Work, optimizer_of
from planner.ledger import Array, each
from planner.specs.capabilities import has
from planner.specs.columns import Columns
from planner.specs.plan import Plan

# an operator of an optimizer's loop: no modules and no autograd around it
LAUNCH_S = 8e-6  # assumed: dispatch of an eager operator in torch, 5 to 10 us on hosts of today
# of the fp32 rate outside tensor cores that cuSOLVER's eigen- and QR-decompositions reach, assumed:
# their panels are matrix-vector products
_DECOMPOSED_FRAC = 0.1


@dataclass(frozen=True)
class Gathers:
    """Matrices of a stage that ranks gather before they update their rows of them."""

    seconds: Array
    bytes: Array  # of a mean matrix
    count: Array


@dataclass(frozen=True)
class MatrixTime:
    """Seconds of a step on the rank that has most to do."""

    seconds: Array
    gathers: Gathers | None


@dataclass(frozen=True)
class _Layer:
    """Seconds of all matrices of a mean layer, and of the one that takes longest."""

    dense: Array
    largest_dense: Array
    experts: Array
    largest_expert: Array


def of_stage(plan: Plan, m: Machine, c: Columns, layers: Array, who: Replicas) -> MatrixTime:
    """All matrices of the layers of a stage.

    Where ranks divide the matrices among themselves, a matrix larger than a rank's share still
    belongs to one rank; where they gather them, every rank orthogonalises all. Routed experts are
    sharded by expert: their matrices stay whole.
    """
    work = optimizer_of(plan.training.optimizer, plan.training.optimizer_rank).work
    if work is None:
        return MatrixTime(0.0 * layers, None)
    combinations, spread = combinations_of(m, c, {"tp": c.tp, "ep": c.ep})
    layer: _Layer = each(_layer(plan, m, work, combinations), spread)
    gathered = has(plan.stack, "whole_matrices", "gathered")
    dense = 1.0 if gathered else shard_count(c.zero, 1.0, who.shards.ranks)
    experts = shard_count(c.zero, 1.0, who.experts.ranks)
    seconds = np.maximum(layers * layer.dense / dense, layer.largest_dense) + np.maximum(
        layers * layer.experts / experts, layer.largest_expert
    )
    return MatrixTime(seconds, _gathers(plan, m, c, layers, who) if gathered else None)


def _layer(
    plan: Plan, m: Machine, work: Callable[[Array, Array], Work], columns: dict[str, Array]
) -> _Layer:
    nothing = 0.0 * columns["tp"]
    by_routing: dict[bool, tuple[list[Array], list[Array]]] = {
        routed: ([nothing], [nothing]) for routed in (False, True)
    }
    for matrix in layer_matrices(plan, columns["tp"], columns["ep"]):
        seconds = _one_s(plan, m, work(matrix.rows, matrix.columns))
        by_routing[matrix.routed][0].append(matrix.count * seconds)
        by_routing[matrix.routed][1].append(seconds)
    (dense, every_dense), (experts, every_expert) = by_routing[False], by_routing[True]
    return _Layer(sum(dense), largest(every_dense), sum(experts), largest(every_expert))


def _gathers(plan: Plan, m: Machine, c: Columns, layers: Array, who: Replicas) -> Gathers | None:
    """Gathers of all matrices except routed experts; None if no layout has any."""
    if not np.any((c.zero >= 1) & (who.shards.ranks > 1)):
        return None
    seconds, moved, calls = 0.0 * layers, 0.0 * layers, 0.0 * layers
    for matrix in layer_matrices(plan, c.tp, c.ep):
        if not matrix.routed:
            size = gathered_bytes(plan, c, matrix.rows * matrix.columns)
            once = np.where(size > 0, communicate.all_gather_s(m, size, who.shards), 0.0)
            count = layers * matrix.count * (size > 0)
            seconds, moved, calls = seconds + count * once, moved + count * size, calls + count
    return Gathers(seconds, moved / np.maximum(calls, 1.0), calls)


def traffic(who: Replicas, gathers: Gathers | None) -> list[communicate.Traffic]:
    """The gathers as a row of the communication table."""
    if gathers is None:
        return []
    return [
        communicate.Traffic(
            "all_gather",
            "data",
            "a matrix for its update",
            "data_parallel",
            gathers.bytes,
            gathers.count,
            gathers.seconds,
            gathers.seconds,
            (who.shards.nodes > 1) * 1.0,
        )
    ]


def _one_s(plan: Plan, m: Machine, work: Work) -> Array:
    """Seconds of the update of one matrix: GPU work or CPU issue, whichever is longer."""
    products = sum(_gemm_s(plan, m, gemm, work.wide) for gemm in work.gemms)
    streamed = moved_s(m, work.moved_bytes, 0.0)
    decomposed = work.decomposed_flop / (m.vector_rate * _DECOMPOSED_FRAC)
    return kernels.launch_bound_s(products + streamed + decomposed, work.launches, LAUNCH_S)


def _gemm_s(plan: Plan, m: Machine, gemm: Gemm, wide: bool) -> Array:
    seconds = gemm.times * gemm_s(plan, m, gemm.m, gemm.n, gemm.k)
    if not wide:
        return seconds
    gpu = plan.cluster.gpu
    narrow = gpu.dense.bf16 or gpu.dense.fp16 or gpu.dense.fp32
    return seconds * float(narrow) / float(gpu.dense.tf32 or gpu.dense.fp32)
