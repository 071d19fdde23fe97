"""Weights and gradients that FSDP holds whole during a step, unit by unit.

A unit is gathered or reduced at once: a layer, or the weights outside of layers (the ends). The
ends are one unit, or two: the embedding, and final norm with head, which then are gathered from the
end of forward on. The moments follow FSDPParamGroup (torch/distributed/fsdp/_fully_shard), and
_runtime_utils.py of torch/distributed/fsdp for FSDP 1. Every expression was compared with live
bytes of accelerate's FSDP 1 and 2 on fake ranks (benchmarks/frameworks).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from planner.estimate import quantised, sync
from planner.estimate.memory import gradients, loss
from planner.estimate.memory.phases import Phased
from planner.estimate.memory.states import ZERO_3
from planner.ledger import Array, total

if TYPE_CHECKING:
    from planner.estimate.memory.stage import StageOf

_TWICE = 2.0  # a unit, and the buffer that it is copied from, or the next unit
_TIED_GRADIENTS = 3.0  # of a table that is the head's weight, too: of both, and their sum


def gathered(s: StageOf, beside: Array) -> Phased:
    """Bytes of gathered units and of gradients that are not sharded yet. beside: bytes that
    mechanisms keep gathered throughout."""
    narrow, wire = sync.compute_bytes(s.plan), sync.wire_bytes(s.plan)
    every, trained, split, state = s.weights.every, s.weights.trained, s.split, s.state
    layer, elements = every.per_layer(), s.layers
    first, last = split.first * total(every.first), split.last * total(every.last)
    elements = elements + first + last
    if s.plan.training.adapter is not None:
        layer, elements = layer + trained.per_layer(), elements + s.trained.all
    saved = quantised.saved_per_layer(s.plan, s.c, every, narrow)
    layer, whole = narrow * layer - saved, narrow * elements - saved * split.layers
    sharded, tied = s.c.zero >= ZERO_3, s.plan.model.tied_embeddings
    # of norm and head, with the embedding where that is in their unit; of only the embedding
    apart = state.ends_apart and not tied
    tail, words = (last, first) if apart else (first + last, 0.0 * first)
    first_given, last_given = split.first * total(trained.first), split.last * total(trained.last)
    head = split.last * trained.words if tied else last_given
    given = trained.per_layer()  # elements of gradients of a layer

    # forward: two units, and the ends where they are one
    ends = 0.0 if apart else narrow * tail
    forward = np.where(sharded, _TWICE * layer + ends, whole + layer)
    # a loss that is computed in forward of a model finds the buffer of the unit that was gathered
    # last; backward of a unit of all gathers the last layer ahead
    stays = layer if state.last_gathered else 0.0
    buffer = narrow * tail if apart else layer
    buffer = buffer if s.plan.stack.activations.published_code else 0.0
    ahead = 0.0 if state.ends_apart else np.where(sharded, layer - stays, 0.0)
    units = np.where(sharded, narrow * tail + stays, whole)
    if s.plan.loss_kernel == "chunked":
        # after forward, which may have resharded the unit of the ends, too
        gone = np.where(sharded, ends, 0.0) * state.root_resharded
        at_loss = np.maximum(units - gone, units + ahead - loss.before_backward(s.plan, s.c))
    else:
        at_loss = np.maximum(units + buffer - loss.last_gradient(s.plan, s.c), units + ahead)

    # backward: while the last layer works, the head's gradients are being reduced, or wait for the
    # embedding's; then the gradients of the layer behind. A layer's own gradients are there
    # when most of its activations are gone
    inside = s.kept.transient + gradients.product(s)
    gone = inside + s.kept.working + s.kept.unit - s.kept.input
    # where whole gradients wait for the last micro-batch, those before it reduce nothing, and what
    # it reduces was there
    once = np.where(sync.keeps_whole(s.plan, s.c), 0.0, 1.0)
    narrow_given, behind = once * narrow * given, once * wire * given
    units = np.where(sharded, _TWICE * layer + ends, whole - (narrow * tail if apart else 0.0))
    waiting = 0.0 if apart else narrow * head
    last_one = units + (once * wire * last_given if apart else waiting)
    another = np.where(sharded, 1.0 * (split.layers > 1), 1.0)  # a layer behind this one
    later = units + waiting + another * behind - s.kept.unit
    of_head = units - layer * sharded + (narrow + once * wire) * last_given * apart
    backward = functools.reduce(
        np.maximum,
        (
            last_one + np.maximum(narrow_given - gone, 0.0),
            later + np.maximum(narrow_given - gone, 0.0),
            of_head - inside - s.kept.working,
        ),
    )
    # the first layer is last, beside the embedding that is gathered ahead; where both ends are one
    # unit, no shards of their gradients are there yet
    shards = np.where(s.microbatches > 1, 0.0, s.states.gradients / np.maximum(s.trained.all, 1.0))
    units = layer + ends + narrow * words + waiting + another * behind
    units = units - (0.0 if apart or tied else shards * last_given)
    end = units + np.maximum(narrow_given - gone, 0.0)
    # then the embedding, whose gradients are reduced
    if apart:
        whole_unit, given, several = narrow * words, first_given, 0.0
        buffer = whole_unit
    else:
        whole_unit, given = narrow * tail, first_given + last_given
        several = (_TIED_GRADIENTS - 1.0) * narrow * head if tied else 0.0
        buffer = 0.0 * whole_unit
    # backward of a DTensor's lookup gives a gradient of all words, then the rank's
    ranks = np.where(s.plan.stack.dtensor & (s.c.tp > 1), s.c.tp, 0.0)
    several = several + ranks * narrow * split.first * trained.words
    computing = whole_unit + behind - shards * given
    computing = computing + np.maximum(buffer, narrow * given + several)
    reducing = once * (narrow + wire) * given
    after = np.maximum(computing, reducing)
    usual = Phased(0.0, forward, at_loss, backward, end, after)
    if state.flat_units:
        usual = _flat(s, layer, whole, gone, shards)
    stays = sync.stays_gathered(s.plan, s.c)
    # a forward pass of shards gives its layers back before the loss
    staying = _staying(s, whole, gone)._replace(loss=np.where(sharded, at_loss, whole))
    each = (np.where(stays, *pair) + beside for pair in zip(staying, usual, strict=True))
    return Phased(*each)._replace(load=0.0, step=0.0)


def _flat(s: StageOf, layer: Array, whole: Array, gone: Array, shards: Array) -> Phased:
    """Bytes of `gathered` under FSDP 1, of units in 16 bit. A unit that was used is free when the
    GPU is done with it, while the next one is gathered; backward gathers one ahead
    (BACKWARD_PRE). Gradients of the views of a unit are there beside the flat one that they are
    joined to, of the ends when everything else is reduced. layer: bytes of a gathered one."""
    narrow, split, trained = sync.compute_bytes(s.plan), s.split, s.weights.trained
    every, sharded = s.weights.every, s.c.zero >= ZERO_3
    tied = s.plan.model.tied_embeddings
    root = narrow * (split.first * total(every.first) + split.last * total(every.last))
    given = split.first * total(trained.first) + split.last * total(trained.last)
    head = narrow * split.last * (trained.words if tied else total(trained.last))
    joined = np.maximum(_TWICE * narrow * trained.per_layer() - gone, 0.0)
    three = np.minimum(_TWICE + 1.0, split.layers + 1.0) * layer  # of one layer, what forward used
    begins = np.where(sharded, root + _TWICE * layer, whole)  # and what backward gathers ahead
    at_loss = np.maximum(
        np.where(sharded, root + layer, whole) - loss.last_gradient(s.plan, s.c), begins
    )
    working = np.where(sharded, root + three, whole)
    backward = np.maximum(begins + head, working + head - s.kept.unit)
    summed = _TIED_GRADIENTS * head if tied else 0.0 * head
    views = np.maximum(_TWICE * narrow * given, narrow * given + summed - head * tied)
    after = root + layer - shards * given + views
    end = root + _TWICE * layer - shards * given + head
    return Phased(0.0, begins, at_loss, backward + joined, end + joined, after)


def _staying(s: StageOf, whole: Array, gone: Array) -> Phased:
    """Bytes of `gathered` where units of a pipeline stage stay gathered, with whole gradients:
    gradients of a layer in 16 bit are added to them when most of its activations are gone; when the
    schedule is over, units are resharded and reduced in turn."""
    split, trained = s.split, s.weights.trained
    layer = trained.per_layer()
    narrow = sync.compute_bytes(s.plan)
    head = narrow * split.last * total(trained.last)
    adding = whole + np.maximum(np.maximum(narrow * layer - gone, 0.0), head)
    unit = np.where(split.first > 0, total(trained.first), layer)
    wire = sync.wire_bytes(s.plan) * (1.0 + 1.0 / s.c.shards)
    reducing = whole + (wire - narrow) * unit
    return Phased(0.0, whole, whole, adding, adding, reducing)
