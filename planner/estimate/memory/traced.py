"""Bytes that a traced block keeps for backward, as its own code was counted."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from planner.estimate.memory import eager
from planner.estimate.memory.beside_frozen import own_copy_bytes
from planner.estimate.memory.tokens import routed_tokens, tokens_of
from planner.formulas.experts import tensor_of
from planner.ledger import Array, Ledger
from planner.specs.columns import Columns
from planner.specs.layers import Kind
from planner.specs.parts import Attended, Traced
from planner.specs.plan import Plan
from planner.specs.polynomial import NONE, Polynomial

_APART, _FUSED = ("saved", "saved_bytes"), ("fused_saved", "fused_saved_bytes")
_FROZEN = "frozen_saved", "frozen_saved_bytes"
_STATISTICS = 4.0  # bytes per query and head that a fused attention keeps for backward


def _ranks(plan: Plan, c: Columns) -> dict[str, Array]:
    """Ranks that divide what is kept, by the shares of a block."""
    moe, copies = plan.model.routed, 1.0 + 0.0 * c.tp
    if moe is not None:
        copies = moe.per_token * tokens_of(plan, c)[0] / routed_tokens(plan, c)
    gathered = plan.stack.activations.gathered_inputs
    whole = gathered == "always" or ((gathered == "without pipeline") & (c.pp == 1))
    inputs = np.where(whole, 1.0, c.sequence_ranks)
    ranks = {"divided": c.tp, "tokens": c.sequence_ranks, "input": inputs}
    return ranks | {"routed": copies, "experts": copies * tensor_of(plan, c.tp)}


def counted(plan: Plan, c: Columns, elements: Polynomial, others: Polynomial) -> Array:
    """Bytes of a micro-batch. elements: of the compute precision; others: bytes of other types."""
    samples, length = c.micro_batch, float(plan.training.seq_len)
    wide = plan.training.element_bytes * elements.at(samples, length, c.cp)
    return wide + others.at(samples, length, c.cp) + 0.0 * c.tp


def saved(plan: Plan, c: Columns, part: Traced, gradients: bool) -> Array:
    """Bytes that a block keeps. gradients: of its weights; without them a matrix keeps no input,
    unless an adapter reads it as it is."""
    names = _FUSED if plan.training.compile else _APART
    every = _rank_bytes(plan, c, part, names)
    if part.cast_saved is not None and eager.wide_stream(plan):
        # what ranks share of it is counted without autocast
        whole = counted(plan, c, *(getattr(part, name) for name in names))
        cast = counted(plan, c, part.cast_saved, part.cast_saved_bytes)
        every = np.where(whole > 0, every * cast / np.maximum(whole, 1.0), cast)
    adapter = plan.training.adapter
    shared = adapter is not None and not own_copy_bytes(plan, adapter)
    if gradients or shared or part.frozen_saved is None:
        return every
    return np.minimum(every, _rank_bytes(plan, c, part, _FROZEN))


def _rank_bytes(plan: Plan, c: Columns, part: Traced, names: tuple[str, str]) -> Array:
    """Bytes on a rank of tensor parallelism. names: keys of elements and of other bytes."""
    out, ranks = counted(plan, c, *(getattr(part, name) for name in names)), _ranks(plan, c)
    for share in part.shares:
        size = counted(plan, c, *(getattr(share, name) for name in names))
        out = out - size * (1 - 1 / ranks[share.ranks])
    return out


def working(plan: Plan, c: Columns, part: Traced) -> Array:
    """Bytes that the largest operator of backward reads and writes."""
    out, ranks = counted(plan, c, part.working, NONE), _ranks(plan, c)
    for share in part.shares:
        out = out - counted(plan, c, share.working, NONE) * (1 - 1 / ranks[share.ranks])
    return out


def products(plan: Plan, c: Columns, kind: Kind) -> Array:
    """Bytes of the input of a layer and of what its GEMMs, convolutions and attention give, which
    selective recompute of all other operators keeps (CheckpointPolicy.MUST_SAVE of
    torch.utils.checkpoint)."""
    samples, e = c.micro_batch, plan.training.element_bytes
    length, copies = float(plan.training.seq_len) / c.cp, _ranks(plan, c)["routed"]
    parts = [part for part in kind.parts if isinstance(part, Traced)]
    entering = next((part.enters for part in parts if part.enters), NONE)
    out = counted(plan, c, entering, NONE) / c.sequence_ranks
    for part in parts:
        for gemm in part.gemms:
            ranks = {"columns": c.tp, "rows": c.sequence_ranks, "none": 1.0}[gemm.split]
            if gemm.routed:
                ranks = copies * (tensor_of(plan, c.tp) if gemm.split == "columns" else 1.0)
            out = out + e * gemm.times * gemm.n * gemm.rows.at(samples, length) / ranks
        for each in part.multiplied:
            sizes = (x.at(samples, length) for x in (each.batch, each.m, each.n))
            out = out + e * math.prod(sizes) / (c.tp if each.split else 1.0)
        for core in part.attention:
            rows = core.queries.at(samples, length) * core.groups.at(samples, length) * samples
            width = e * (core.value_dim or core.head_dim) + _STATISTICS
            out = out + core.times * core.heads * width * rows / (c.tp if core.split else 1.0)
    return out


def scores(plan: Plan, c: Columns, part: Traced, bytes_each: Callable[[Attended], float]) -> Ledger:
    """Bytes of scores that a kernel other than a fused one writes to memory."""
    cores = [core for core in part.core() if isinstance(core, Attended)]
    if not cores:
        return {}
    total = 0.0 * c.tp
    for core in cores:
        if (each := bytes_each(core)) and core.spans is not None:
            groups, queries, keys = core.spans.at(float(plan.training.seq_len), c.cp)
            pairs = groups * queries * keys * c.micro_batch
            total = total + each * core.heads * pairs / (c.tp if core.split else 1.0)
    return {"attention/core": total}
