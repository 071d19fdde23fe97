"""Buffers of a stage: buckets of gradients and of tokens of experts, buffers of the optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.estimate import sync
from planner.estimate.layer import dispatch
from planner.estimate.matrices import gathered_bytes, largest, layer_matrices
from planner.estimate.memory import activations
from planner.estimate.memory.phases import Phased, throughout
from planner.estimate.memory.states import ZERO_3
from planner.estimate.memory.tokens import tokens_of
from planner.estimate.memory.workspaces import workspace_bytes
from planner.formulas import experts as expert_ranks
from planner.formulas.optimizers import optimizer_of
from planner.ledger import Array
from planner.specs.layout import OFFLOADED_OPTIMIZER

if TYPE_CHECKING:
    from planner.estimate.memory.stage import StageOf

_DOUBLE = 8.0  # bytes of an fp64 element
_BUFFERS = 2.0  # of DeepSpeed's ZeRO-1 and 2, one of which is filled while the other is reduced


def buckets(s: StageOf) -> Phased:
    """Buckets in which gradients and tokens of experts travel."""
    plan, c = s.plan, s.c
    # ZeRO of DeepSpeed fills and reduces them on one rank, too
    fixed = ((c.replicas > 1) | (c.zero > 0)) * _fixed_buckets(s)
    sizes = (c.replicas > 1) * 1.0 * s.state.bucket * s.trained.all
    if plan.model.routed is not None and plan.model.moe_layers:
        local = tokens_of(plan, c)[1]
        tensor = expert_ranks.tensor_of(plan, c.tp)
        sizes = sizes + dispatch.buffer_bytes(plan, c.ep, tensor, local)
    lasting = Phased(*(sizes + waiting for waiting in _received(s)))
    return Phased(*map(np.add, lasting, _in_phases(s, fixed)))


def _in_phases(s: StageOf, fixed: Array) -> Phased:
    """Buckets of fixed size, which ZeRO-1 and 2 may have for a backward pass only."""
    if s.state.buckets_from == "load":
        return throughout(fixed)
    meanwhile = np.where(s.c.zero >= ZERO_3, fixed, 0.0)
    at_loss = fixed if s.state.buckets_from == "loss" else meanwhile
    return throughout(fixed)._replace(
        load=meanwhile, forward=meanwhile, loss=at_loss, step=meanwhile
    )


def _received(s: StageOf) -> Phased:
    """Buffers of torch's stages: for what every micro-batch receives, forward and backward
    (_create_act_recv_info and _create_grad_recv_info of torch/distributed/pipelining/stage.py). A
    micro-batch in flight keeps its own as the input of a layer."""
    if s.plan.stack.pipelining != "torch":
        return throughout(0.0)
    c, each = s.c, activations.one_input(s.plan, s.c) * (s.c.pp > 1)
    edges = 2 * c.vpp - s.split.first - s.split.last
    idle = each * s.microbatches * edges
    busy = idle - each * s.chunks * (1 - s.split.first / c.vpp)
    return throughout(busy)._replace(load=idle, step=idle)


def bucket_elements(s: StageOf) -> Array:
    """Elements that a bucket of fixed size holds."""
    two = s.state.zero3_buckets is not None and sync.beside(s.plan, "reduce")
    several = np.where(s.c.zero < ZERO_3, _BUFFERS if two else 1.0, 1.0)
    return _fixed_buckets(s) / several / sync.compute_bytes(s.plan)


def copied(s: StageOf) -> Array:
    """Layouts in which DeepSpeed copies every gradient to a bucket as soon as it is there."""
    reduces = (s.c.zero > 0) & (s.c.replicas > 1)
    return reduces & (s.state.parts_reduced and sync.beside(s.plan, "reduce"))


def flat_copy(s: StageOf) -> Array:
    """Bytes of a copy of a bucket while it is reduced: of ZeRO-1 and 2 by the ranks that its slices
    belong to (allreduce_bucket of zero/stage_1_and_2.py flattens them), of ZeRO-3 with the shards
    of a rank beside one another (reduce_scatter_coalesced of comm/coalesced_collectives.py)."""
    elements = np.minimum(bucket_elements(s), s.trained.all)
    return np.where(copied(s), sync.compute_bytes(s.plan) * elements, 0.0)


def _fixed_buckets(s: StageOf) -> Array:
    """Bytes of fixed-size buckets, if the request sets their size: those filled or reduced at the
    same time; one without overlap."""
    requested = s.plan.training.data_bucket
    whole, zero3 = s.state.fixed_buckets, s.state.zero3_buckets
    several = 1.0 if zero3 is None else _BUFFERS
    zero3 = whole if zero3 is None else zero3
    if requested is not None and whole > 0:
        whole, zero3 = several * requested, requested
    if not sync.beside(s.plan, "reduce"):
        whole = whole / several
    return np.where(s.c.zero >= ZERO_3, zero3, whole)


def of_optimizer(s: StageOf) -> Phased:
    """Buffers of the optimizer's step."""
    plan, c, state = s.plan, s.c, s.state
    temporary = state.optimizer_temporary * s.trained.owned
    if state.parts_reduced:  # the norm of a tensor's part reads an fp64 copy: get_grad_norm_direct
        part = np.minimum(s.weights.trained.words * s.split.first, s.trained.owned)
        sharded = (c.zero > 0) & (c.zero < ZERO_3)
        temporary = np.maximum(temporary, np.where(sharded, _DOUBLE * part, 0.0))
    known = optimizer_of(plan.training.optimizer, plan.training.optimizer_rank)
    if known.work is not None:  # one after the other, in place of buffers for all of them
        matrix = largest(
            [
                known.temporary_bytes(m.rows, m.columns)
                + gathered_bytes(plan, c, m.rows * m.columns)
                for m in layer_matrices(plan, c.tp, c.ep)
            ]
        )
        temporary = temporary * (1 - s.trained.inner_frac) + matrix
    if state.zero3_turn is not None:
        turn = state.optimizer_temporary * (plan.training.sub_group_size or state.zero3_turn)
        temporary = np.where(c.zero >= ZERO_3, np.minimum(temporary, turn), temporary)
    on_cpu = c.offloads(*OFFLOADED_OPTIMIZER) & (plan.stack.offload_update == "cpu")
    temporary = np.where(on_cpu, 0.0, temporary)
    if state.flat_gather:
        weights = sync.compute_bytes(plan) * (s.trained.all + s.trained.owned)
        gathers = (c.zero == 1) & (c.replicas > 1)
        temporary = np.maximum(temporary, np.where(gathers, weights, 0.0))
    return Phased(step=temporary)


def workspaces(s: StageOf) -> Phased:
    """Workspaces of GEMM libraries."""
    return throughout(workspace_bytes(s.plan, s.c))
