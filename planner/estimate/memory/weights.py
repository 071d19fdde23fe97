"""Weights of a stage beside those that are trained: gathered, made of codes, cast, copied, of
another model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.estimate import mechanisms, quantised, sync
from planner.estimate.memory import frozen, low_precision
from planner.estimate.memory.phases import Phased, between_updates, throughout
from planner.estimate.memory.states import ZERO_2, ZERO_3
from planner.estimate.state_types import frozen_bytes
from planner.formulas import memory
from planner.ledger import Array, total
from planner.specs.mechanism import Sharded

if TYPE_CHECKING:
    from planner.estimate.memory.stage import StageOf

_CAST_BYTES = 2.0  # of a parameter in 16 bit


def gathered(s: StageOf) -> Phased:
    """Weights that a pass gathers, of a teacher too, and gradients that are being reduced."""
    weights = _gathered(s)
    both = weights + _reducing(s)
    taught = s.plan.training.teacher_here
    return Phased(
        forward=weights,
        loss=np.maximum(weights, s.teacher[1]) if taught else weights,
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
    """Copies that autocast keeps of weights that are whole in fp32."""
    return between_updates(np.where(s.c.zero < ZERO_3, _CAST_BYTES * s.trained.all, 0.0))


def low_precision_copies(s: StageOf) -> Phased:
    """Copies that stay beside the 16-bit weights of the layers of a stage, from the first
    micro-batch on; ZeRO-3 makes them of what it has gathered."""
    each = low_precision.narrow_share(s.plan) * low_precision.copies_bytes(s.plan)
    copied = memory.state_bytes(s.layers, each, 1.0)
    return throughout(np.where(s.c.zero >= ZERO_3, 0.0, copied))


def others(s: StageOf) -> Phased:
    """Weights of a teacher, or of a reference: all weights of the stage again, frozen."""
    if s.plan.teacher:
        return throughout(s.teacher[0])
    each = frozen_bytes(s.plan)
    return throughout(frozen.whole_bytes(s.weights.every, s.split, each, s.parameter_ranks))
