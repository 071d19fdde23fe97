"""PyTorch DistributedDataParallel and its options."""

from __future__ import annotations

from planner.estimate import sync
from planner.estimate.gradients import BUCKET_CAP_BYTES, bucket_count
from planner.formulas import compression, data_parallel
from planner.specs.plan import Plan
from planner.verbs.strategies.base import (
    FP32_BYTES,
    Context,
    Cost,
    Strategy,
    with_state,
    with_training,
)
from planner.verbs.strategies.compressed import power_sgd, power_sgd_steps

_PAPER = "PyTorch DDP, Li et al. 2020 (arXiv 2006.15704)"
_DOCS = "torch.nn.parallel.DistributedDataParallel, documentation of torch 2"
_HOOKS = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"

# a 16-bit hook reads 4 B and writes 2 B of every gradient before the reduction, reads 2 B and
# writes 4 B after it
_HOOK_BYTES = 12.0


def _every_micro_batch(x: Context) -> Cost:
    """Without no_sync all micro-batches reduce their gradients, each beside its own backward
    pass."""
    gradients = sync.wire_bytes(x.plan) * x.parameters
    each = x.all_reduce_s(gradients, _calls(x))
    exposed = x.microbatches * x.overlapped_s(each, x.last_s(gradients, _cap(x)))
    ranks = x.who.group.ranks
    sent = data_parallel.backward_volume_bytes(
        0.0, gradients, 0.0, ranks, x.microbatches, x.microbatches
    )
    leaving = data_parallel.leaving_bytes(sent, ranks, x.who.group.ranks_per_node)
    return x.cost(exposed, x.microbatches * each, (0.0, sent, 0.0), leaving)


def _cap(x: Context) -> float:
    return float(x.plan.stack.overlap.bucket or BUCKET_CAP_BYTES)


def _calls(x: Context) -> int:
    """Buckets of the model."""
    fusion = x.plan.stack.fusion
    return bucket_count(
        x.plan.model, fusion.joint_qkv, fusion.joint_gate, sync.wire_bytes(x.plan), _cap(x)
    )


def _hook(x: Context) -> Cost:
    """The bucket is cast, reduced in 16 bit, and cast back."""
    gradients = 2.0 * x.parameters
    total = x.all_reduce_s(gradients, _calls(x))
    codec = compression.codec_s(
        _HOOK_BYTES * x.parameters,
        0.0,
        memory_bytes_per_s=x.m.memory_bandwidth,
        stream_frac=x.m.stream_frac,
        rate_flop_per_s=x.m.wide_rate,
    )
    ranks = x.who.group.ranks
    sent = data_parallel.backward_volume_bytes(0.0, gradients, 0.0, ranks, x.microbatches)
    leaving = data_parallel.leaving_bytes(sent, ranks, x.who.group.ranks_per_node)
    last = x.last_s(gradients, _cap(x) * gradients / (sync.wire_bytes(x.plan) * x.parameters))
    return x.cost(x.overlapped_s(total, last), total, (0.0, sent, 0.0), leaving, codec)


def _bucket_view(plan: Plan) -> Plan:
    return with_state(plan, bucket=0.0)


def _power_sgd(plan: Plan) -> Plan:
    """The hook keeps what it has not sent, as large as the gradients in fp32."""
    return with_state(with_training(plan), bucket=plan.stack.state.bucket + FP32_BYTES)


STRATEGIES = (
    Strategy(
        "ddp",
        "PyTorch DDP",
        "DDP",
        "buckets of 25 MiB, reduced beside backward; gradients accumulate under no_sync",
        _PAPER,
        "pytorch-ddp",
    ),
    Strategy(
        "ddp-sync-always",
        "DDP without no_sync",
        "DDP",
        "every micro-batch reduces all gradients",
        _PAPER + " section 3.2.4",
        "pytorch-ddp",
        cost=_every_micro_batch,
    ),
    Strategy(
        "ddp-bucket-view",
        "DDP, gradient_as_bucket_view",
        "DDP",
        "gradients are views of the buckets: no second copy of them, 4 B per parameter less",
        _DOCS,
        "pytorch-ddp",
        change=_bucket_view,
    ),
    Strategy(
        "ddp-static-graph",
        "DDP, static_graph",
        "DDP",
        "the first backward pass reduces all at its end and learns the order; from then on as DDP",
        _DOCS,
        "pytorch-ddp",
    ),
    Strategy(
        "ddp-fp16-hook",
        "DDP, fp16_compress_hook",
        "DDP",
        "buckets are cast to fp16 for the reduction: half of the bytes",
        _HOOKS,
        "pytorch-ddp",
        cost=_hook,
    ),
    Strategy(
        "ddp-bf16-hook",
        "DDP, bf16_compress_hook",
        "DDP",
        "the same in bf16, which keeps the range of fp32",
        _HOOKS,
        "pytorch-ddp",
        cost=_hook,
    ),
    Strategy(
        "ddp-powersgd-hook",
        "DDP, PowerSGD hook",
        "DDP",
        "low-rank factors of every matrix are reduced; what is left out is kept for the next step",
        "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook; Vogels et al. 2019 (arXiv"
        " 1905.13727)",
        "pytorch-ddp",
        cost=power_sgd,
        change=_power_sgd,
        steps=power_sgd_steps,
    ),
)
