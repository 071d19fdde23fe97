"""Weights of a stage beside those that are trained: gathered, made of codes, cast, copied, of
another model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.estimate import mechanisms, quantised, sync
from planner.estimate.memory import frozen, loss, low_precision
from planner.estimate.memory.phases import Phased, throughout
from planner.estimate.memory.states import ZERO_2, ZERO_3
from planner.estimate.state_types import frozen_bytes
from planner.formulas import memory
from planner.ledger import Array, total
from planner.specs.mechanism import Sharded

if TYPE_CHECKING:
    from planner.estimate.memory.stage import StageOf

_CAST_BYTES = 2.0  # of a parameter in 16 bit


def gathered(s: StageOf) -> Phased:
    """Weights that a pass gathers, of a second model too, and gradients that are being reduced."""
    weights = _gathered(s)
    # a layer that is whole in a step is sharded again after its backward pass
    left = sync.compute_bytes(s.plan) * (_root(s) + s.weights.every.per_layer())
    both = np.where(_kept_whole(s), np.minimum(weights, left), weights) + _reducing(s)
    # where the last layer is sharded again by then, FSDP2 holds the buffer that it was gathered in
    layer = sync.compute_bytes(s.plan) * s.weights.every.per_layer()
    sharded = (s.c.zero >= ZERO_3) & (not s.state.last_gathered)
    at_loss = np.where(sharded, np.maximum(weights - layer, 0.0), weights)
    return Phased(
        forward=weights,
        loss=at_loss if s.plan.second is None else np.maximum(at_loss, s.second[1]),
        backward=weights,
        end=both,
        synchronisation=both,
    )


def _root(s: StageOf) -> Array:
    every = s.weights.every
    return s.split.first * total(every.first) + s.split.last * total(every.last)


def _gathered(s: StageOf) -> Array:
    plan, c, every, root = s.plan, s.c, s.weights.every, _root(s)
    narrow = sync.compute_bytes(plan)
    layer, elements = every.per_layer(), s.layers + root
    if plan.training.adapter is not None:
        layer, elements = layer + s.weights.trained.per_layer(), elements + s.trained.all
    saved = quantised.saved_per_layer(plan, c, every, narrow)
    weights = np.where(
        c.zero >= ZERO_3,
        narrow * root + frozen.GATHERED_LAYERS * (narrow * layer - saved),
        np.where(_kept_whole(s), narrow * elements - saved * s.split.layers, 0.0),
    )
    beside = mechanisms.gathered(plan, c, lambda: Sharded(elements, narrow, c.shards))
    return weights if beside is None else weights + np.where(c.zero >= ZERO_3, beside, 0.0)


def _kept_whole(s: StageOf) -> Array:
    """Layouts of ZeRO-2 whose parameters are sharded between steps, and whole in them."""
    return s.state.zero2_gathers & (s.c.zero == ZERO_2)


def _reducing(s: StageOf) -> Array:
    layer, narrow = s.weights.trained.per_layer(), sync.compute_bytes(s.plan)
    both = (narrow + sync.wire_bytes(s.plan)) * layer
    sharded = np.where(s.c.zero == ZERO_2, narrow * layer, 0.0)
    return np.where((s.c.zero >= ZERO_3) | _kept_whole(s), both, sharded)


def dequantised(s: StageOf) -> Phased:
    """A frozen matrix made of its codes, while a GEMM reads it."""
    matrix = quantised.made_bytes(s.plan, s.c)
    return Phased(forward=matrix, backward=matrix, end=matrix)


def cast(s: StageOf) -> Phased:
    """Copies that autocast makes of fp32 weights that matrices read: its cache holds all of them
    until the loss. Backward then keeps the copies of layers that are not repeated."""
    p, split = s.weights.trained, s.split
    looked_up = 0.0 if s.plan.model.tied_embeddings else split.first * p.words
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
    each = frozen_bytes(s.plan)
    return throughout(frozen.whole_bytes(s.weights.every, s.split, each, s.parameter_ranks))
