"""Tensors that the passes of a stage keep for backward, and those they make while they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.estimate import sync
from planner.estimate.memory import (
    activations,
    attention,
    caches,
    eager,
    free_pass,
    gradients,
    loss,
    offload,
)
from planner.estimate.memory.phases import Phased, between_updates, in_backward, throughout
from planner.estimate.memory.tokens import tokens_of
from planner.formulas import memory
from planner.formulas.stages import mtp_layers
from planner.ledger import Array
from planner.specs.towers import head_plan

if TYPE_CHECKING:
    from planner.estimate.memory.stage import StageOf


def kept(s: StageOf) -> Phased:
    """Activations of all micro-batches in flight."""
    ends = _of_ends(s)
    alive = s.chunks / s.c.vpp * (s.kept.stage + s.in_no_layer) + ends
    alive = alive - s.offloaded[0]
    whole = alive + caches.cached(s.plan, s.c, s.again)
    # the last unit of a micro-batch is still there before its gradients are, and then the gradient
    # of its input, of which the embedding's is made
    last, done = _waiting(s, s.kept.unit), _waiting(s, np.minimum(s.kept.input, s.kept.unit))
    # stages of torch reduce gradients when the schedule is over
    done = np.where(sync.stays_gathered(s.plan, s.c), 0.0, done)
    # backward of final norm and head is over when the last layer begins its own; measured peaks
    # have both where FSDP 1 keeps a second layer (fms), and with a head fused in the loss (fms,
    # prime-rl)
    in_loss = s.plan.loss_kernel == "fused-linear" or s.plan.training.loss_chunks > 1
    stay = _holds_frozen(s) | (mtp_layers(s.plan) > 0) | in_loss
    inner = alive - np.where(stay, 0.0, np.maximum(ends, 0.0))
    return Phased(forward=whole, loss=whole, backward=inner, end=last, synchronisation=done)


def _of_ends(s: StageOf) -> Array:
    """Bytes of final norms, heads, and modules of multi-token prediction."""
    ends = activations.head_activations(s.plan, s.c) * s.heads
    if mtp_layers(s.plan):
        ends = ends + activations.module_activations(s.plan, s.c) * s.split.mtp
    return ends - activations.unread_norm(s.plan, s.c) * s.split.first


def _waiting(s: StageOf, unit: Array) -> Array:
    """Micro-batches in flight that wait while backward of one ends. unit: bytes that one leaves."""
    others = np.maximum(s.chunks - 1, 0.0) / s.c.vpp
    away = offload.moved(s.plan, s.c, s.kept, others * s.kept.stage + unit, 0.0)[0]
    return others * (s.kept.stage + s.in_no_layer) + unit - away


def recomputed(s: StageOf) -> Phased:
    """Activations of layers that are repeated, while backward works on them."""
    more = s.plan.stack.activations.frozen_layers - 1.0
    return in_backward(s.kept.working + np.where(_holds_frozen(s), more * s.kept.whole, 0.0))


def _holds_frozen(s: StageOf) -> Array:
    """Layouts that hold activations of several layers in backward where weights are frozen."""
    several = (s.c.zero >= 2) & (s.c.replicas > 1) & s.c.is_recompute("full", "group")
    holds = s.plan.stack.activations.frozen_layers > 1
    return several & (holds and s.plan.training.adapter is not None)


def temporaries(s: StageOf) -> Phased:
    """Gradients alive inside the largest operator of a layer, or inside the final norm, behind
    which all layers are kept and nothing is repeated yet."""
    inside = s.kept.transient + gradients.product(s)
    return in_backward(inside)._replace(backward=np.maximum(inside, _final_norm(s)))


def _final_norm(s: StageOf) -> Array:
    """Bytes of the final norm in backward, less what repeated layers would take."""
    plan = head_plan(s.plan)
    if not plan.model.final_norm or mtp_layers(plan):
        return 0.0 * s.split.last
    local, each = tokens_of(plan, s.c)[1], eager.norm_working_bytes(plan)
    works = memory.product_input_bytes(local, float(plan.model.hidden), each)
    return s.split.last * np.maximum(works - s.kept.working, 0.0)


def logits(s: StageOf) -> Phased:
    """Logits at the losses of the stage."""
    at_loss, free = loss.logits(s.plan, s.c), loss.free_logits(s.plan, s.c)
    if s.plan.loss_kernel != "tiled":
        after = throughout(loss.after_loss(s.plan, s.c) * s.heads)
        before = loss.before_loss(s.plan, s.c) * s.heads
        return after._replace(load=0.0, forward=before, loss=(at_loss + free) * s.heads)
    if s.plan.training.free_passes:  # over before backward begins, beside the copy that it reads
        both = loss.head_input(s.plan, s.c) + np.maximum(free, free_pass.layer_bytes(s.plan, s.c))
        at_loss = np.maximum(at_loss, both)
    return Phased(loss=at_loss * s.heads)


def sequence_buffers(s: StageOf) -> Phased:
    """Whole tensors of a GEMM under sequence parallelism, and a buffer that stays."""
    gathered, output = activations.sequence_buffers(s.plan, s.c)
    scores = attention.score_buffer(s.plan, s.c)
    stays = np.maximum(gathered, scores)
    step = np.where(scores > 0, stays, 0.0)
    return between_updates(stays + output)._replace(step=step)
