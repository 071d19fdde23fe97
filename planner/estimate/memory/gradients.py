"""Gradients of a stage: those that accumulate, copies beside them, and products that make them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from planner.estimate import sync
from planner.estimate.gradients import tensors
from planner.estimate.memory import buffers, eager
from planner.estimate.memory.phases import Phased
from planner.estimate.moments import state_ledger
from planner.estimate.states import RankParameters
from planner.formulas.data_parallel import shard_count
from planner.formulas.optimizers import TYPE_BYTES
from planner.ledger import Array, total
from planner.specs.columns import Columns
from planner.specs.layers import parts_of
from planner.specs.mechanism import Gradients
from planner.specs.parts import Mlp
from planner.specs.plan import Plan

if TYPE_CHECKING:
    from planner.estimate.memory.stage import StageOf

_ZERO_2 = 2.0  # the first ZeRO stage that shards gradients


def accumulated(s: StageOf) -> Phased:
    """Gradients that accumulate over micro-batches, and are complete at the end of backward."""
    gradients, trained, p = s.states.gradients, s.trained.all, s.weights.trained
    persistent = s.state.persistent_gradients & (s.c.zero >= s.state.persistent_from)
    standing = np.where(persistent | (s.microbatches > 1), gradients, 0.0)
    standing = np.where(sync.keeps_whole(s.plan, s.c), sync.wire_bytes(s.plan) * trained, standing)
    # where all forward passes run before the first backward, none are there before it, nor all of
    # them before a micro-batch is gone
    after = sync.stays_gathered(s.plan, s.c) & s.c.is_schedule("gpipe")
    before = np.where(after, 0.0, standing)
    meanwhile = np.maximum(standing - after * (s.kept.stage + s.in_no_layer), before)
    head, stays = _of_head(s, standing), _beyond_buckets(s)
    # while the first layers are repeated, their gradients are not there yet, nor is the embedding's
    # unless it is the head's, too
    waits = s.plan.model.tied_embeddings & (head > 0)
    embedded = s.split.first * p.words * ~waits
    ahead = np.minimum(s.kept.unit_layers * p.per_layer() + embedded, trained)
    part, ready = _reduced_parts(s, gradients)
    reached = np.maximum(standing, part * (1 - ahead / np.maximum(trained, 1.0)))
    return Phased(
        load=np.where(persistent, gradients, 0.0),
        forward=before,
        loss=meanwhile,
        backward=meanwhile + head + stays[0],
        end=reached + np.where((standing > 0) | buffers.copied(s), head, 0.0) + stays[0],
        synchronisation=np.where(sync.keeps_whole(s.plan, s.c), standing, ready) + sum(stays),
        step=ready,
    )


def _of_head(s: StageOf, standing: Array) -> Array:
    """Bytes of the gradient of the head's weight while layers are in backward, beside those that
    stand: of an untied head it is among these; a tied one waits for the embedding's gradient
    (InputBuffer of torch), also as the empty gradient that Megatron's linear layers
    return where they have added to the buffer themselves."""
    p, last = s.weights.trained, s.split.last
    if s.plan.model.tied_embeddings:
        elements = last * s.split.first * p.words
    else:
        elements = np.where(standing > 0, 0.0, last * p.last.get("head/logits", 0.0))
    adds_itself = s.plan.stack.fusion.gradient_accumulation_fp32
    if not s.plan.trains_head or (adds_itself and not s.plan.model.tied_embeddings):
        elements = 0.0 * last
    # of DeepSpeed it is in a bucket, or reduced, unless it waits
    away = by_units(s) | (buffers.copied(s) & (not s.plan.model.tied_embeddings))
    return np.where(away, 0.0, _given_bytes(s) * elements)


def _beyond_buckets(s: StageOf) -> tuple[Array, Array]:
    """Bytes of gradients of (head, layers) that are larger than a bucket of DeepSpeed, which under
    ZeRO-1 stay until the step (extra_large_param_to_reduce of zero/stage_1_and_2.py)."""
    nothing = 0.0 * s.split.first
    if not s.state.parts_reduced:
        return nothing, nothing
    p, largest, fusion = s.weights.trained, buffers.bucket_elements(s), s.plan.stack.fusion
    head, inner = p.last.get("head/logits", 0.0 * p.words), nothing
    every = tensors(s.plan.model, fusion.joint_qkv, fusion.joint_gate)
    sizes = Counter(each.elements for each in every if each.layer is not None)
    for elements, count in sizes.items():
        each = elements / s.c.tp
        inner = inner + count * each * (each > largest)
    stay = (s.c.zero == 1) * (s.c.replicas > 1) * sync.compute_bytes(s.plan)
    inner = inner * s.split.layers / s.plan.model.layers
    return stay * (head > largest) * head * s.split.last, stay * inner


def _given_bytes(s: StageOf) -> float:
    """Bytes per element in which autograd gives the gradient of a weight."""
    # what autocast made of a weight in fp32 is cast back
    return float(s.state.gradient if eager.wide_stream(s.plan) else sync.compute_bytes(s.plan))


def _reduced_parts(s: StageOf, gradients: Array) -> tuple[Array, Array]:
    """Bytes of gradients of a rank while layers are in backward, and when it is over: of ZeRO-1 its
    part, where the last micro-batch reduces into it and frees the others while it runs. The part
    of the first rank begins with the embedding, whose gradient comes last."""
    if not s.state.parts_reduced or not sync.beside(s.plan, "reduce"):
        return gradients, gradients
    part = np.where(s.c.zero == 1, gradients / s.c.shards, gradients)
    # the buffer has all of a tensor that the part begins or ends in, and is made for the first one
    # (copy_grads_in_partition of zero/stage_1_and_2.py)
    largest = state_ledger(s.plan)["gradients"] * s.weights.trained.words * s.split.first
    shared = (s.c.zero > 0) & (s.c.zero <= _ZERO_2) & (s.c.shards > 1)
    late = shared & (largest >= part)
    return np.where(late, 0.0, part), np.where(late, largest, part)


def _last_reduced(s: StageOf, added: Array) -> Array:
    """Bytes beside gradients that are ready while the embedding's, which is the last one, is made
    and reduced: in DeepSpeed it is there before a bucket, or the rank's part, has it. added: bytes
    of gradients that are added to it."""
    if not s.state.parts_reduced or not sync.beside(s.plan, "reduce"):
        return added
    given = sync.compute_bytes(s.plan) * s.weights.trained.words * s.split.first
    given = np.where((s.microbatches > 1) & (s.c.zero < _ZERO_2), 0.0, given)  # it stood already
    part, ready = _reduced_parts(s, s.states.gradients)
    large = s.weights.trained.words > buffers.bucket_elements(s)
    reduced = np.where(large, given, buffers.flat_copy(s))
    here = np.maximum(np.maximum(part + given + added - ready, reduced), 0.0)
    return np.where((s.c.zero > 0) & (s.c.zero <= _ZERO_2), here, added)


def copies(s: StageOf) -> Phased:
    """Gradients that autograd hands over where others accumulate: an empty one per shape where the
    GEMM adds to the buffer itself (Transformer Engine, get_dummy_wgrad), and a real one for the
    embedding at the end of backward."""
    moe, p, each = s.plan.model.routed, s.weights.trained, s.state.layer_gradient_copy
    local = moe.experts / s.c.ep if moe is not None else 1.0
    placeholders = each * (p.largest + p.most_experts / local) + 0.0 * s.split.first
    head = each * p.words * s.split.last
    copied = s.state.gradient_copy * s.trained.all / s.c.vpp + placeholders
    # the first layers and the embedding have none yet, nor has the head that waits for it
    unit = s.kept.unit_layers * p.per_layer() + s.split.first * p.words
    later = s.state.gradient_copy * np.minimum(unit, s.trained.all / s.c.vpp)
    return Phased(
        forward=placeholders,
        loss=placeholders + np.where(s.split.last > 0, head, 0.0),
        backward=placeholders,
        end=copied - later + _of_first(s),
        synchronisation=copied + np.where(by_units(s), 0.0, _last_reduced(s, of_embedding(s))),
        step=placeholders,
    )


def _of_first(s: StageOf) -> Array:
    """Bytes of the embedding's gradient beyond what its backward frees, where other micro-batches
    are in flight in a first stage that FSDP keeps gathered: in the type of the pass, beside the
    one in fp32 that it is added to."""
    given = sync.compute_bytes(s.plan) * s.split.first * s.weights.trained.words
    freed = s.kept.unit - np.minimum(s.kept.input, s.kept.unit)
    freed = freed + s.kept.working + s.kept.transient + product(s)
    return np.where(sync.stays_gathered(s.plan, s.c), np.maximum(given - freed, 0.0), 0.0)


def by_units(s: StageOf) -> Array:
    """Layouts of FSDP whose weights are gathered, and gradients reduced, by units."""
    return s.state.zero2_gathers & (s.c.zero >= _ZERO_2)


def of_embedding(s: StageOf) -> Array:
    """Bytes of gradients of the embedding beside the one that stays: what is added to it, and where
    it is the head's weight, too, what both give, and their sum unless autograd adds in place
    (InputBuffer::accumulate: not to a view, as nn.Linear's gradient of its weight is; Megatron's
    own linear layers return a product)."""
    wide = s.state.gradient > TYPE_BYTES["bf16"]
    cast, each = eager.wide_stream(s.plan), _given_bytes(s)
    # those that wait beside the buffer are counted with it
    waits = s.state.gradient_copy > 0
    adds = 1.0 * ((s.microbatches > 1) | (s.state.persistent_gradients and wide)) * (not waits)
    if s.plan.model.tied_embeddings and not s.plan.stack.fusion.gradient_accumulation_fp32:
        product = s.plan.stack.family == "megatron" and not waits
        in_place = cast or product or s.plan.loss_kernel == "tiled"
        adds = adds + s.split.last * (1.0 if in_place else 2.0)
    return each * adds * s.weights.trained.words * s.split.first


def product(s: StageOf) -> Array:
    """Bytes of the largest gradient that a GEMM gives: of the MLP down-projection (of all experts
    of a layer, which are one tensor), allocated while its input and grad-input are live."""
    plan, p, dense = s.plan, s.weights.trained, 0.0 * s.c.tp
    if plan.training.adapter is not None or s.state.layer_gradient_copy != 0:
        return dense
    for part, _ in parts_of(plan.model):
        if isinstance(part, Mlp):
            dense = np.maximum(dense, part.ffn_hidden * plan.model.hidden / s.c.tp)
    moe = plan.model.routed
    largest = np.maximum(dense, p.most_experts / (moe.inputs + 1 if moe else 1))
    return sync.compute_bytes(plan) * largest


def of_stage(s: StageOf) -> Gradients:
    """Gradients of a stage, for mechanisms that change their lifetime."""
    plan, c, p, state = s.plan, s.c, s.weights.trained, s.plan.stack.state
    return Gradients(
        shards=shard_count(c.zero, _ZERO_2, c.shards),
        layer=p.per_layer(),
        tensor=_largest_tensor(plan, c, p),
        head=p.last.get("head/logits", 0.0 * p.words),
        last=total(p.last),
        words=p.words,
        tied=plan.model.tied_embeddings,
        each=state_ledger(plan)["gradients"],
        temporary=s.state.optimizer_temporary,
        product=product(s),
        as_given=plan.training.state_precision == "bf16"
        or state.gradient <= sync.compute_bytes(plan),
    )


def _largest_tensor(plan: Plan, c: Columns, p: RankParameters) -> Array:
    """Elements on this rank of the largest weight of a layer; experts of a layer are one tensor."""
    fusion = plan.stack.fusion
    every = tensors(plan.model, fusion.joint_qkv, fusion.joint_gate)
    dense = [
        tensor.elements
        for tensor in every
        if tensor.layer is not None and tensor.name != "moe/experts"
    ]
    moe = plan.model.routed
    experts = p.most_experts / (moe.inputs + 1 if moe else 1)
    return np.maximum(float(max(dense)) / c.tp, experts)
