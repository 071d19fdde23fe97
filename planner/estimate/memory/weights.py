"""Weights of a stage beside those that are trained: gathered, made of codes, cast, copied, of
another model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.estimate import mechanisms, quantised, sync
from planner.estimate.layer import head_columns
from planner.estimate.memory import buffers, frozen, gradients, loss, low_precision, units
from planner.estimate.memory.phases import Phased, throughout
from planner.estimate.memory.states import ZERO_2, ZERO_3
from planner.estimate.state_types import reference_bytes
from planner.formulas import memory
from planner.ledger import Array, total
from planner.specs.mechanism import Sharded
from planner.specs.towers import head_plan

if TYPE_CHECKING:
    from planner.estimate.memory.stage import StageOf

_CAST_BYTES = 2.0  # of a parameter in 16 bit


def gathered(s: StageOf) -> Phased:
    """Weights that a pass gathers, of a second model too, and gradients that are being reduced."""
    weights = _gathered(s)
    both = weights + _reducing(s)
    turn = np.maximum(weights, _turning(s))
    whole = Phased(forward=turn, loss=turn, backward=turn, end=both, synchronisation=both)
    if s.state.parts_reduced:
        here = buffers.copied(s)
        pairs = zip(_copied(s, turn), whole, strict=True)
        whole = Phased(*(np.where(here, of_buckets, each) for of_buckets, each in pairs))
    if s.state.zero2_gathers:
        of_units, here = units.gathered(s, _beside(s)), gradients.by_units(s)
        pairs = zip(of_units, whole, strict=True)
        whole = Phased(*(np.where(here, unit, each) for unit, each in pairs))
    if s.plan.second is not None:
        whole = whole._replace(loss=np.maximum(whole.loss, s.second[1]))
    return whole


def _gathered(s: StageOf) -> Array:
    """Weights of ZeRO-3 without units: two layers, and the weights outside of layers."""
    plan, c, every, split = s.plan, s.c, s.weights.every, s.split
    root, narrow = (
        split.first * total(every.first) + split.last * total(every.last),
        sync.compute_bytes(plan),
    )
    layer = every.per_layer()
    if plan.training.adapter is not None:
        layer = layer + s.weights.trained.per_layer()
    saved = quantised.saved_per_layer(plan, c, every, narrow)
    weights = narrow * root + frozen.GATHERED_LAYERS * (narrow * layer - saved)
    return np.where(c.zero >= ZERO_3, weights + _beside(s), 0.0)


def _copied(s: StageOf, turn: Array) -> Phased:
    """Bytes of `gathered` where gradients are copied to buckets. A bucket is full when the
    activations, and under ZeRO-3 the weights, behind its gradients are gone; first layer and
    embedding are gathered last. turn: bytes of weights that stay gathered from forward on."""
    sharded, narrow, every = s.c.zero >= ZERO_3, sync.compute_bytes(s.plan), s.weights.every
    words = s.split.first * total(every.first)
    last = np.where(sharded, narrow * np.minimum(every.per_layer() + words, _elements(s)), 0.0)
    copy, given = buffers.flat_copy(s), narrow * s.split.first * s.weights.trained.words
    layers = buffers.bucket_elements(s) / np.maximum(s.weights.trained.per_layer(), 1.0)
    gone = np.minimum(layers, s.split.layers) * s.kept.unit
    backward = np.where(sharded, turn, np.maximum(copy - gone, 0.0))
    after = np.where(sharded, narrow * words + np.maximum(copy, given), 0.0)
    end = last + copy
    beside = _beside(s)
    return Phased(0.0, turn, turn, backward, end + beside, after + beside, 0.0)


def _elements(s: StageOf) -> Array:
    """Weights of the stage, trained or not."""
    every, split = s.weights.every, s.split
    elements = s.layers + split.first * total(every.first) + split.last * total(every.last)
    return elements + s.trained.all if s.plan.training.adapter is not None else elements


def _turning(s: StageOf) -> Array:
    """Bytes of weights that stay gathered from forward to backward: the last ones, behind and
    before which this many elements are used that the next use is near enough. Where layers are
    repeated backward passes them twice."""
    passes = 2.0 + s.c.is_recompute("full", "group")
    kept = np.minimum(_elements(s), s.state.reuse_elements / passes)
    return np.where(s.c.zero >= ZERO_3, sync.compute_bytes(s.plan) * kept + _beside(s), 0.0)


def _beside(s: StageOf) -> Array:
    """Bytes that mechanisms keep gathered under ZeRO-3."""
    narrow = sync.compute_bytes(s.plan)
    beside = mechanisms.gathered(s.plan, s.c, lambda: Sharded(_elements(s), narrow, s.c.shards))
    return 0.0 if beside is None else np.where(s.c.zero >= ZERO_3, beside, 0.0)


def _reducing(s: StageOf) -> Array:
    layer, narrow = s.weights.trained.per_layer(), sync.compute_bytes(s.plan)
    both = (narrow + sync.wire_bytes(s.plan)) * layer
    sharded = np.where(s.c.zero == ZERO_2, narrow * layer, 0.0)
    return np.where(s.c.zero >= ZERO_3, both, sharded)


def dequantised(s: StageOf) -> Phased:
    """A frozen matrix made of its codes, while a GEMM reads it; of fp32 weights and of codes that
    torch operators decode, the 16-bit copies that layers which are not repeated keep for backward;
    the head's of fp32 weights. Gathered shards are in 16 bit already."""
    matrix, base = quantised.made_bytes(s.plan, s.c), quantised.base_of(s.plan)
    head, chained = _cast_head(s), s.plan.decodes_in_chain
    if base is None or not (base.keeps_made or chained):
        return Phased(forward=matrix, loss=head, backward=matrix, end=matrix)
    every = s.weights.every
    repeated = sum(n * each for n, each in zip(s.again.kinds, every.kinds, strict=True))
    unit = s.kept.unit_layers * total(every.layer)
    kept, later, unit_kept = (
        np.where(s.c.zero < ZERO_3, _CAST_BYTES * elements, 0.0)
        for elements in (s.layers - repeated, np.maximum(s.layers - repeated, unit), unit)
    )
    if chained:  # a repeated layer decodes its last matrix beside the others
        more = matrix * (1.0 - _CAST_BYTES / base.chain_holds)
        later, unit_kept = later + more, unit_kept + more
    return Phased(forward=kept + matrix, loss=kept + head, backward=later, end=unit_kept)


def _cast_head(s: StageOf) -> Array:
    """Bytes of the 16-bit copy that autocast makes of a frozen head in fp32, from which backward
    of the loss starts: weights without a gradient are in no cache. Tiles of a head are cast one at
    a time."""
    plan, head = s.plan, head_plan(s.plan)
    wide = plan.base_upcast == "all" and plan.training.mixed_precision
    if not wide or plan.trains_head or plan.loss_kernel == "tiled":
        return 0.0 * s.c.tp
    elements = head_columns(head, s.c.tp) * float(head.model.hidden)
    return np.where(s.c.zero < ZERO_3, _CAST_BYTES * s.split.last * elements, 0.0)


def cast(s: StageOf) -> Phased:
    """Copies that autocast makes of fp32 weights that matrices read: its cache holds all of them
    until the loss. Backward then keeps the copies of layers that are not repeated."""
    p, split = s.weights.trained, s.split
    looked_up = 0.0 if s.plan.model.tied_embeddings else split.first * p.words
    if s.plan.loss_kernel == "tiled":  # which casts a tile of the head at a time, without autocast
        head = split.last * p.last.get("head/logits", 0.0 * p.words)
        looked_up = split.first * p.words + head
    experts = s.trained.experts * s.plan.stack.activations.published_code  # in no list of autocast
    ends = split.first * total(p.first) + split.last * total(p.last) - looked_up
    repeated = sum(n * each for n, each in zip(s.again.kinds, p.kinds, strict=True))
    unit = s.kept.unit_layers * total(p.layer)
    every = s.trained.shared - looked_up + s.trained.experts - experts
    backward = np.maximum(every - repeated, ends + unit)
    whole, later, last = (
        np.where(s.c.zero < ZERO_3, _CAST_BYTES * elements, 0.0)
        for elements in (every, backward, np.minimum(unit, every))
    )
    # autocast ends before backward of the loss, whose second gradient is more than its cache
    at_loss = np.maximum(later, whole - loss.last_gradient(s.plan, s.c))
    if not s.plan.model.vocab:  # whose loss scripts compute after the model, and its autocast
        at_loss = later
    return Phased(forward=whole, loss=at_loss, backward=later, end=last)


def low_precision_copies(s: StageOf) -> Phased:
    """Copies that stay beside the 16-bit weights of the layers of a stage, from the first
    micro-batch on; ZeRO-3 makes them of what it has gathered."""
    each = low_precision.narrow_share(s.plan) * low_precision.copies_bytes(s.plan)
    copied = memory.state_bytes(s.layers, each, 1.0)
    return throughout(np.where(s.c.zero >= ZERO_3, 0.0, copied))


def others(s: StageOf) -> Phased:
    """Weights of a second model, or of a reference: all weights of the stage again, frozen."""
    if s.plan.second is not None:
        return throughout(s.second[0])
    each = reference_bytes(s.plan)
    return throughout(frozen.whole_bytes(s.weights.every, s.split, each, s.parameter_ranks))
