"""PyTorch DistributedDataParallel and its options."""

from __future__ import annotations

from planner.estimate import sync
from planner.verbs.strategies.base import (
    Context,
    Cost,
    Strategy,
    no_cost,
    with_copies,
    without_buckets,
)
from planner.verbs.strategies.compressed import POWER_SGD_STEPS, power_sgd

_PAPER = "PyTorch DDP, Li et al. 2020 (arXiv 2006.15704)"
_DOCS = "torch.nn.parallel.DistributedDataParallel, documentation of torch 2"
_HOOKS = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"

# a 16-bit hook reads 4 B and writes 2 B of every gradient before the reduction, reads 2 B and
# writes 4 B after it
_HOOK_BYTES = 12.0
_HALF_BYTES = 2.0  # of a gradient in 16 bit


def _every_micro_batch(x: Context) -> Cost:
    """Without no_sync all micro-batches reduce their gradients, each beside its own backward
    pass."""
    gradients = sync.wire_bytes(x.plan) * x.parameters
    each = x.all_reduce_s(gradients, x.buckets.count)
    last = x.all_reduce_s(gradients * x.last_share)
    exposed = x.microbatches * x.overlapped_s(each, last)
    sent, leaving = x.all_reduced_bytes(gradients, x.microbatches, x.microbatches)
    return x.cost(exposed, x.microbatches * each, (0.0, sent, 0.0), leaving)


def _hook(x: Context) -> Cost:
    """The bucket is cast, reduced in 16 bit, and cast back."""
    gradients = _HALF_BYTES * x.parameters
    total = x.all_reduce_s(gradients, x.buckets.count)
    codec = x.codec_s(_HOOK_BYTES * x.parameters)
    sent, leaving = x.all_reduced_bytes(gradients, x.microbatches)
    last = x.all_reduce_s(gradients * x.last_share)
    return x.cost(x.overlapped_s(total, last), total, (0.0, sent, 0.0), leaving, codec)


_ROUNDED = no_cost(
    "gradients rounded to 16 bit before they are summed: taken as no cost; " + _HOOKS
)

STRATEGIES = (
    Strategy(
        name="ddp",
        title="PyTorch DDP",
        family="DDP",
        differs="buckets of {bucket}, reduced beside backward; gradients accumulate under no_sync",
        source=_PAPER,
        stack="pytorch-ddp",
    ),
    Strategy(
        name="ddp-sync-always",
        title="DDP without no_sync",
        family="DDP",
        differs="every micro-batch reduces all gradients",
        source=_PAPER + " section 3.2.4",
        stack="pytorch-ddp",
        cost=_every_micro_batch,
    ),
    Strategy(
        name="ddp-bucket-view",
        title="DDP, gradient_as_bucket_view",
        family="DDP",
        differs=(
            "gradients are views of the buckets: no second copy of them, 4 B per parameter less"
        ),
        source=_DOCS,
        stack="pytorch-ddp",
        change=without_buckets,
    ),
    Strategy(
        name="ddp-static-graph",
        title="DDP, static_graph",
        family="DDP",
        differs=(
            "the first backward pass reduces all at its end and learns the order; from then on as"
            " DDP"
        ),
        source=_DOCS,
        stack="pytorch-ddp",
    ),
    Strategy(
        name="ddp-fp16-hook",
        title="DDP, fp16_compress_hook",
        family="DDP",
        differs="buckets are cast to fp16 for the reduction: half of the bytes",
        source=_HOOKS,
        stack="pytorch-ddp",
        cost=_hook,
        steps=_ROUNDED,
    ),
    Strategy(
        name="ddp-bf16-hook",
        title="DDP, bf16_compress_hook",
        family="DDP",
        differs="the same in bf16, which keeps the range of fp32",
        source=_HOOKS,
        stack="pytorch-ddp",
        cost=_hook,
        steps=_ROUNDED,
    ),
    Strategy(
        name="ddp-powersgd-hook",
        title="DDP, PowerSGD hook",
        family="DDP",
        differs=(
            "low-rank factors of every matrix are reduced; what is left out is kept for the next"
            " step"
        ),
        source=(
            "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook; Vogels et al. 2019 (arXiv"
            " 1905.13727)"
        ),
        stack="pytorch-ddp",
        cost=power_sgd,
        change=with_copies(1),  # what the hook has not sent
        steps=POWER_SGD_STEPS,
    ),
)
