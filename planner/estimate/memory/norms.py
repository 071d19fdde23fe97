"""Bytes per element that norms keep for backward."""

from __future__ import annotations

from planner.estimate.memory import eager
from planner.specs.plan import Plan

COUNTED_ELEMENT = 2.0  # bytes of an element for which the bytes of a stack are counted
# the least that an RMSNorm of several operators keeps per element where a stack does not say: an
# fp32 copy of its input and the normed element in 16 bit; own count
_SPLIT_NORM_BYTES = 6.0
_STATISTIC_BYTES = 4.0  # of a norm, in fp32


def norm_bytes(plan: Plan, of_stream: bool = True) -> float:
    """Bytes that a norm keeps per element: its input, or where it is several operators an fp32 copy
    and the normed element. of_stream: norms of a layer's blocks, of which one per block reads the
    residual stream, and others what a matrix returns."""
    if plan.fused_norm:
        if eager.casts_inputs(plan):  # its input is made fp32, if it is not
            return eager.WIDE_BYTES
        share = of_stream / max(plan.model.norms_per_block, 1)
        return plan.stream_bytes + share * (eager.residual_bytes(plan) - plan.stream_bytes)
    wide = max(plan.stack.activations.norm, _SPLIT_NORM_BYTES) - COUNTED_ELEMENT
    return wide + normed_bytes(plan)


def normed_bytes(plan: Plan) -> float:
    """Bytes of that for the gradient of the norm's weight, where it is several operators."""
    return eager.WIDE_BYTES if eager.wide_stream(plan) else eager.normed_bytes(plan)


def statistic_bytes(plan: Plan) -> float:
    """Bytes of a norm per token: mean and deviation, or only the latter."""
    return _STATISTIC_BYTES * (2.0 if plan.model.norm == "layernorm" else 1.0)
