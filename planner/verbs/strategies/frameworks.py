"""The same idea in other frameworks: nn.DataParallel, TensorFlow, JAX, Horovod. What differs is
memory and overlap."""

from __future__ import annotations

import dataclasses

import numpy as np

from planner.estimate import communicate, sync
from planner.estimate.machine import Machine
from planner.formulas import collectives
from planner.specs.plan import Plan
from planner.verbs.strategies.base import (
    FP32_BYTES,
    Context,
    Cost,
    with_overlap,
    with_state,
    without_overlap,
)

_LOGIT_BYTES = 2.0  # outputs of replicas in 16 bit
_FUSION_BYTES = 128 * 2**20  # HOROVOD_FUSION_THRESHOLD since 0.21
_CYCLE_S = 1e-3  # HOROVOD_CYCLE_TIME since 0.21
_FUSION_MOVED = 16.0  # each fp32 gradient is read and written into the fusion buffer, and out of it


def one_interpreter(plan: Plan, m: Machine) -> Machine:
    """One Python process issues the forward pass of all GPUs in turn; autograd's own threads need
    no interpreter."""
    return dataclasses.replace(m, operators_forward=m.operators_forward * plan.cluster.gpus)


def data_parallel(x: Context) -> Cost:
    """Parameters are broadcast before every forward pass, outputs gathered, gradients summed on GPU
    0: nothing overlaps."""
    ranks, model, c = x.who.group.ranks, x.plan.model, x.estimates.table
    weights = FP32_BYTES * x.parameters
    send = collectives.group_bandwidth_bytes_per_s(
        ranks,
        bandwidth_bytes_per_s=x.m.intra_bandwidth,
        frac=x.m.intra_send,
        two_rank_frac=1.0,
        peers=x.m.intra_peers,
        mesh=x.m.intra_mesh,
        host_bytes_per_s=x.m.intra_host,
    )
    one_way = collectives.send_recv_s(
        weights, latency_s=x.m.intra_base, bytes_per_s=send
    )  # a chain passes on what arrives
    logits = c.micro_batch * x.plan.training.seq_len * model.padded_vocab * _LOGIT_BYTES
    gathered = collectives.send_recv_s(
        (ranks - 1) * logits, latency_s=x.m.intra_base, bytes_per_s=send
    )
    each = 2 * one_way + gathered
    sent = x.microbatches * weights * (ranks - 1) / ranks
    zero = 0.0 * ranks
    # GPU 0 holds the outputs of all replicas, and their gradients
    return x.cost(
        x.microbatches * each,
        x.microbatches * each,
        (sent, sent, zero),
        zero,
        extra_bytes=2 * (ranks - 1) * logits,
    )


def packed(plan: Plan) -> Plan:
    """All gradients in one pack: reduced after backward, in a copy as large as they are."""
    return without_overlap(with_overlap(plan, bucket=None))


def fused(plan: Plan) -> Plan:
    """One fusion buffer instead of buckets for all gradients."""
    return with_state(
        with_overlap(plan, bucket=None), bucket=0.0, fixed_buckets=float(_FUSION_BYTES)
    )


def horovod(x: Context) -> Cost:
    """Gradients ready at the end of a cycle are copied into the fusion buffer, reduced, and copied
    out."""
    gradients = sync.wire_bytes(x.plan) * x.parameters
    calls = float(max(np.ceil(gradients / _FUSION_BYTES), 1.0))
    total = x.all_reduce_s(gradients, calls) + calls * _CYCLE_S
    last = communicate.all_reduce_s(x.m, gradients / calls, x.who.group) + _CYCLE_S
    moved = x.codec_s(_FUSION_MOVED * x.parameters)
    sent, leaving = x.all_reduced_bytes(gradients, x.microbatches)
    return x.cost(
        x.overlapped_s(total, last, x.window_s / calls), total, (0.0, sent, 0.0), leaving, moved
    )
