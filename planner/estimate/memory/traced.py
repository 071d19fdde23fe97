"""Bytes that a traced block keeps for backward, as its own code was counted."""

from __future__ import annotations

from collections.abc import Callable

from planner.ledger import Array, Ledger
from planner.specs.columns import Columns
from planner.specs.parts import Attended, Traced
from planner.specs.plan import Plan
from planner.specs.polynomial import Polynomial


def counted(plan: Plan, c: Columns, elements: Polynomial, others: Polynomial) -> Array:
    """Bytes of a micro-batch. elements: of the compute precision; others: bytes of other types."""
    samples, length = c.micro_batch, float(plan.training.seq_len)
    wide = plan.training.element_bytes * elements.at(samples, length)
    return wide + others.at(samples, length) + 0.0 * c.tp


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
