"""PyTorch DistributedDataParallel and its options."""

from __future__ import annotations

from planner.estimate import sync
from planner.verbs.strategies.base import Context, Cost

# a 16-bit hook reads 4 B and writes 2 B of every gradient before the reduction, reads 2 B and
# writes 4 B after it
_HOOK_BYTES = 12.0
_HALF_BYTES = 2.0  # of a gradient in 16 bit


def every_micro_batch(x: Context) -> Cost:
    """Without no_sync all micro-batches reduce their gradients, each beside its own backward
    pass."""
    gradients = sync.wire_bytes(x.plan) * x.parameters
    each = x.all_reduce_s(gradients, x.buckets.count)
    last = x.all_reduce_s(gradients * x.last_share)
    exposed = x.microbatches * x.overlapped_s(each, last)
    sent, leaving = x.all_reduced_bytes(gradients, x.microbatches, x.microbatches)
    return x.cost(exposed, x.microbatches * each, (0.0, sent, 0.0), leaving)


def hook(x: Context) -> Cost:
    """The bucket is cast, reduced in 16 bit, and cast back."""
    gradients = _HALF_BYTES * x.parameters
    total = x.all_reduce_s(gradients, x.buckets.count)
    codec = x.codec_s(_HOOK_BYTES * x.parameters)
    sent, leaving = x.all_reduced_bytes(gradients, x.microbatches)
    last = x.all_reduce_s(gradients * x.last_share)
    return x.cost(x.overlapped_s(total, last), total, (0.0, sent, 0.0), leaving, codec)
