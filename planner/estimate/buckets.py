"""The timeline of gradient buckets: when each is ready during the backward pass, and when it is
reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.estimate import communicate, sync
from planner.estimate.gradients import BUCKET_CAP_BYTES, Tensor, assign, first_bytes, tensors
from planner.estimate.machine import Machine
from planner.estimate.step import StepTime
from planner.formulas import overlap
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.plan import Plan


@dataclass(frozen=True)
class Bucket:
    """Gradients that are reduced together; seconds count from the start of the backward pass."""

    tensors: int
    bytes: float
    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """One backward pass with its reductions."""

    buckets: tuple[Bucket, ...]
    backward_s: float  # without any reduction beside it
    tail_s: float  # from the end of backward to the end of the last reduction
    contention_s: float  # by which backward is longer because it shares the chip

    @property
    def exposed_s(self) -> float:
        return self.tail_s + self.contention_s


def ready_s(parameters: Sequence[Tensor], layers: int, layer_s: float, head_s: float) -> Array:
    """Seconds from the start of backward at which each gradient is ready, in the order of
    `parameters` (the order of the forward pass).

    A layer's time is split among its GEMMs in proportion to their weights, attention and all else
    with them; the head comes first.
    """
    spent = np.array(
        [tensor.work * (head_s if tensor.layer is None else layer_s) for tensor in parameters]
    )
    times = np.cumsum(spent[::-1])[::-1]
    loss = (
        0.0 if any(tensor.layer is None and tensor.work > 0 for tensor in parameters) else head_s
    )  # a tied head: its GEMM and the loss
    return np.minimum(times + loss, layers * layer_s + head_s)


def timeline(
    ready: Array,
    sizes: Array,
    reduce_s: Array,
    counts: Sequence[int],
    backward_s: float,
    slowdown: float,
) -> Timeline:
    """Buckets in the order in which they become ready, each reduced after the one before it."""
    ends = overlap.bucket_ends_s(ready, reduce_s)
    beside = float(np.sum(np.clip(np.minimum(ends, backward_s) - (ends - reduce_s), 0.0, None)))
    buckets = tuple(
        Bucket(count, float(size), float(at), float(end - spent), float(end))
        for count, size, at, end, spent in zip(counts, sizes, ready, ends, reduce_s, strict=True)
    )
    return Timeline(buckets, backward_s, max(float(ends[-1]) - backward_s, 0.0), slowdown * beside)


def of_estimate(
    plan: Plan, m: Machine, table: Columns, time: StepTime, cap: float = BUCKET_CAP_BYTES
) -> Timeline:
    """The backward pass of the last micro-batch of one layout (a table of one row) of plain data
    parallelism."""
    parameters = tensors(plan.model, plan.stack.fusion.joint_qkv, plan.stack.fusion.joint_gate)
    layer, whole = time.ranks.each.mean, time.ranks.work[2]
    layer_s = float(np.ravel(layer.input_gradient + layer.weight_gradient)[0])
    backward_s = float(np.ravel(whole.input_gradient + whole.weight_gradient)[0])
    ready = ready_s(
        parameters, plan.model.layers, layer_s, max(backward_s - plan.model.layers * layer_s, 0.0)
    )[::-1]
    sizes = np.array([sync.wire_bytes(plan) * tensor.elements for tensor in reversed(parameters)])
    groups = assign(sizes.tolist(), first_bytes(cap), cap)
    bucket_bytes = np.array([sizes[group].sum() for group in groups])
    who = sync.replicas(plan, table)
    reduce_s = np.array(
        [float(np.ravel(communicate.all_reduce_s(m, size, who.group))[0]) for size in bucket_bytes]
    )
    latest = np.array([ready[group].max() for group in groups])
    return timeline(
        latest,
        bucket_bytes,
        reduce_s,
        [len(group) for group in groups],
        backward_s,
        float(m.slowdown),
    )
