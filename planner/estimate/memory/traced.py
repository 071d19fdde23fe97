"""Bytes that a traced block keeps for backward, as its own code was counted."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from planner.estimate.memory import eager
from planner.estimate.memory.beside_frozen import own_copy_bytes
from planner.ledger import Array, Ledger
from planner.specs.columns import Columns
from planner.specs.layers import Kind
from planner.specs.parts import Attended, Traced
from planner.specs.parts.base import Kept
from planner.specs.plan import Plan
from planner.specs.polynomial import NONE, Polynomial

_STATISTICS = 4.0  # bytes per query and head that a fused attention keeps for backward


def counted(plan: Plan, c: Columns, elements: Polynomial, others: Polynomial) -> Array:
    """Bytes of a micro-batch. elements: of the compute precision; others: bytes of other types."""
    samples, length = c.micro_batch, float(plan.training.seq_len)
    wide = plan.training.element_bytes * elements.at(samples, length)
    return wide + others.at(samples, length) + 0.0 * c.tp


def saved(plan: Plan, c: Columns, kept: Kept, gradients: bool) -> Array:
    """Bytes that a block keeps. gradients: of its weights; without them a matrix keeps no input,
    unless an adapter reads it as it is."""
    assert kept.counted is not None
    known = kept.counted[int(bool(plan.training.compile))]
    if kept.cast is not None and eager.wide_stream(plan):
        known = kept.cast
    every = counted(plan, c, *known)
    adapter = plan.training.adapter
    shared = adapter is not None and not own_copy_bytes(plan, adapter)
    if gradients or shared or kept.frozen is None:
        return every
    return np.minimum(every, counted(plan, c, *kept.frozen))


def products(plan: Plan, c: Columns, kind: Kind) -> Array:
    """Bytes of the input of a layer and of what its GEMMs, convolutions and attention give, which
    selective recompute of all other operators keeps (CheckpointPolicy.MUST_SAVE of
    torch.utils.checkpoint)."""
    samples, length, e = c.micro_batch, float(plan.training.seq_len), plan.training.element_bytes
    parts = [part for part in kind.parts if isinstance(part, Traced)]
    entering = next((part.enters for part in parts if part.enters), NONE)
    out = counted(plan, c, entering, NONE)
    for part in parts:
        for gemm in part.gemms:
            out = out + e * gemm.times * gemm.n * gemm.rows.at(samples, length)
        for each in part.multiplied:
            sizes = (x.at(samples, length) for x in (each.batch, each.m, each.n))
            out = out + e * math.prod(sizes)
        for core in part.attention:
            rows = core.queries.at(samples, length) * core.groups.at(samples, length) * samples
            width = e * (core.value_dim or core.head_dim) + _STATISTICS
            out = out + core.times * core.heads * width * rows
    return out


def scores(plan: Plan, c: Columns, part: Traced, bytes_each: Callable[[Attended], float]) -> Ledger:
    """Bytes of scores that a kernel other than a fused one writes to memory."""
    cores = [core for core in part.core() if isinstance(core, Attended)]
    if not cores:
        return {}
    total = 0.0 * c.tp
    for core in cores:
        if (each := bytes_each(core)) and core.spans is not None:
            groups, queries, keys = core.spans.at(float(plan.training.seq_len))
            total = total + each * core.heads * float(groups * queries * keys) * c.micro_batch
    return {"attention/core": total}
