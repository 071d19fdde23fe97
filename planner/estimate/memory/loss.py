"""Logits alive at the loss, by the kernel that computes it."""

from __future__ import annotations

import functools

import numpy as np

from planner.estimate.layer import head_columns
from planner.estimate.layer.head import CONTRASTED, loss_chunks
from planner.estimate.memory import eager
from planner.estimate.memory.tokens import tokens_of
from planner.formulas import memory
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.mechanism import Divergence
from planner.specs.plan import Plan
from planner.specs.towers import head_plan

# of one of the words of a token that are compared: an id, and both probabilities with their logs
TOP_BYTES = 24.0
# of a logit where a loss over tensor ranks is made of torch's operators: log-softmax, zeros,
# exponentials and their sum, in fp32 (torch/distributed/tensor/parallel/loss.py)
_OF_RANKS = 16.0
_SUMMED = 3  # gradients of the head of chunks: the sum, the next one, and their sum
_NARROW, _WIDE = 2.0, 4.0  # bytes of a logit in 16 bit and in fp32


def logits(plan: Plan, c: Columns) -> Array:
    """Logits alive at the loss, on the stage that computes it."""
    plan = head_plan(plan)
    tokens, h = tokens_of(plan, c)[0], float(plan.model.hidden)
    e = plan.training.element_bytes
    each: Array = _logit_bytes(plan)
    if plan.stack.dtensor and plan.loss_kernel in (None, "torch") and not plan.training.compile:
        each = np.where(c.tp > 1, _OF_RANKS, each)
    if plan.model.contrast is not None:
        others = CONTRASTED * c.batch(plan.training.global_batch)
        embedded = e * others * float(plan.model.contrast)
        return embedded + memory.logits_bytes(c.micro_batch, others, each, np.ones_like(c.tp))
    share = np.ones_like(c.tp) if plan.stack.activations.gathered_logits else c.tp
    vocab, chunks = head_columns(plan, c.tp) * c.tp, loss_chunks(plan, tokens)
    top = 0.0
    if (second := plan.second) is not None and second.words is None:
        each = _divergence_bytes(plan, second.divergence, chunks)
        if plan.loss_kernel == "chunked":
            return memory.logits_bytes(tokens, vocab, each, share)
    elif second is not None:  # cross-entropy with some words in place of one
        top = tokens * TOP_BYTES * second.words
        each = each if second.place == "apart" else np.maximum(each, 2 * e)
    if plan.loss_kernel == "chunked":
        kept, turn = (e, e) if plan.training.compile else (e + _WIDE, _WIDE)
        each_logit = memory.chunked_logits_bytes(kept + 0.0 * tokens, turn, chunks)
        at_loss = memory.logits_bytes(tokens, vocab, each_logit, share)
        return np.maximum(at_loss, _chunks_in_backward(plan, c)) + top
    if plan.loss_kernel == "tiled":
        return top + _of_tiles(plan, c) + last_gradient(plan, c)
    whole = memory.logits_bytes(tokens, vocab, each, share)
    return top + memory.chunked_loss_bytes(
        whole, chunks, tokens, h, vocab, e, c.tp, float(plan.trains_head)
    )


def _chunks_in_backward(plan: Plan, c: Columns) -> Array:
    """Bytes of a chunked loss once its backward pass is at the head: at first the gradient of the
    first chunk and the logits that backward of the others needs; then gradients of all logits, the
    weight's gradient of the next chunk, and a new sum beside the sum so far. plan: of the head."""
    e, chunks = plan.training.element_bytes, loss_chunks(plan, tokens_of(plan, c)[0])
    share = np.ones_like(c.tp) if plan.stack.activations.gathered_logits else c.tp
    tokens, vocab = tokens_of(plan, c)[0], head_columns(plan, c.tp) * c.tp
    h, needs = float(plan.model.hidden), e if plan.training.compile else _WIDE
    weight = plan.trains_head * memory.state_bytes(vocab * h, e, c.tp)
    inputs = memory.product_input_bytes(tokens, h, e)
    begins = memory.logits_bytes(tokens, vocab, needs - (needs - e) / chunks, share)
    gradients = memory.logits_bytes(tokens, vocab, e + 0.0 * chunks, share)
    sums = [
        (1.0 - gone / chunks) * (gradients + inputs) + (gone + 1.0) * weight
        for gone in range(_SUMMED)
    ]
    sums = [np.where(chunks > gone, each, 0.0) for gone, each in enumerate(sums)]
    return functools.reduce(np.maximum, (begins, *sums))


def before_backward(plan: Plan, c: Columns) -> Array:
    """Bytes that a chunked loss has in forward beyond those once its backward pass is at the
    head."""
    return logits(plan, c) - _chunks_in_backward(head_plan(plan), c)


def sent(plan: Plan, c: Columns, live: Array) -> Array:
    """Bytes per micro-batch in flight that a last stage of torch's keeps until its backward: logits
    in 16 bit, and what backward of the loss needs, but of the one whose loss is computed.
    live: micro-batches in flight."""
    operators = plan.loss_kernel in (None, "torch") and not plan.training.compile
    each = plan.training.element_bytes + _WIDE * operators * (1.0 - 1.0 / live)
    plan = head_plan(plan)
    share = np.ones_like(c.tp) if plan.stack.activations.gathered_logits else c.tp
    tokens, vocab = tokens_of(plan, c)[0], head_columns(plan, c.tp) * c.tp
    return memory.logits_bytes(tokens, vocab, each, share)


def after_loss(plan: Plan, c: Columns) -> Array:
    """Bytes of logits that the training loop holds when the loss is over."""
    head, each = head_plan(plan), plan.stack.activations.held_logits
    tokens, vocab = tokens_of(head, c)[0], head_columns(head, c.tp) * c.tp
    return memory.logits_bytes(tokens, vocab, each, np.ones_like(c.tp))


def before_loss(plan: Plan, c: Columns) -> Array:
    """Bytes of logits at the end of forward where the loop keeps the logits of the micro-batch
    before: the old ones, new ones in 16 bit, and their converted copy."""
    before = after_loss(plan, c)
    converted = plan.training.element_bytes / max(plan.stack.activations.held_logits, 1.0)
    return before * (2.0 + converted)


def last_gradient(plan: Plan, c: Columns) -> Array:
    """Bytes that backward of a loss takes beyond its forward pass: of torch operators, gradients of
    logits and of their log-softmax, where 16-bit logits and an fp32 copy are there before."""
    head, e = head_plan(plan), plan.training.element_bytes
    tokens, vocab = tokens_of(head, c)[0], head_columns(head, c.tp) * c.tp
    if plan.loss_kernel == "tiled":
        tokens = tokens * plan.training.loss_share
        columns = plan.trains_head * vocab / c.tp
        # in fp32, and returned in 16 bit where input and weight are not in fp32
        gradient = _WIDE + e * (not eager.wide_stream(plan))
        hidden = float(head.model.hidden)
        return memory.tiled_gradient_bytes(tokens, hidden, columns, gradient)
    each = 3 * _WIDE - (e + 2 * _WIDE)
    if plan.loss_kernel not in (None, "torch") or each < 0:
        return 0.0 * c.tp
    share = np.ones_like(c.tp) if plan.stack.activations.gathered_logits else c.tp
    return memory.logits_bytes(tokens, vocab, each, share)


def head_input(plan: Plan, c: Columns) -> Array:
    """Bytes of the input of the head, as the final norm returns it, of tokens in the loss."""
    head = head_plan(plan)
    tokens, each = tokens_of(head, c)[0], eager.residual_bytes(plan)
    tokens = tokens * plan.training.loss_share
    return memory.product_input_bytes(tokens, float(head.model.hidden), each)


def _of_tiles(plan: Plan, c: Columns) -> Array:
    """Bytes of a head and loss in tiles beside gradients."""
    head, cast = head_plan(plan), 1.0 * eager.wide_stream(plan)
    tokens, hidden = tokens_of(head, c)[0], float(head.model.hidden)
    tokens = tokens * plan.training.loss_share
    given = eager.residual_bytes(plan)
    e, columns = plan.training.element_bytes, head_columns(head, c.tp)
    return memory.tiled_logits_bytes(tokens, hidden, columns, given, e, cast)


def _divergence_bytes(plan: Plan, divergence: Divergence, chunks: Array) -> Array:
    """Bytes alive per logit while the distributions of two models are compared, both logits
    included: in fp32, or in 16 bit if the loss is chunked."""
    e = plan.training.element_bytes
    if plan.loss_kernel == "chunked":
        hard = divergence.hard * (
            _WIDE + _WIDE / chunks
        )  # its log-softmax, and one fp32 copy at a time
        return 2 * e + divergence.kept + np.maximum(divergence.turn / chunks, hard)
    narrow = 2 * e if plan.loss_kernel == "fused-linear" else 0.0
    return (
        narrow
        + 2 * _WIDE
        + divergence.kept
        + np.maximum(divergence.turn, divergence.hard * 2 * _WIDE)
    )


def _logit_bytes(plan: Plan) -> float:
    """Bytes that are alive per logit while its loss is computed."""
    e, kept, kernel = plan.training.element_bytes, plan.stack.activations, plan.loss_kernel
    if kernel == "fused-linear":
        return e
    if kernel == "fused":
        each = e if kept.fused_logits is None else kept.fused_logits
    elif kernel is None and plan.training.compile and kept.compiled_logits is not None:
        each = kept.compiled_logits
    elif kernel is None and plan.training.adapter is not None and kept.adapter_logits is not None:
        each = kept.adapter_logits
    else:
        each = kept.logits
    if kernel in (None, "torch") and eager.runs_code(plan, "capped logits"):
        each += e  # what tanh returns
    # code that leaves the type of logits to autocast has no logits in fp32 without it
    if "narrow logits" in plan.model.holds and not eager.autocasts(plan):
        each *= e / _WIDE
    # without mixed precision, what has 16-bit logits in it has them in fp32
    if not plan.training.mixed_precision and each % e == _NARROW:
        each += e - _NARROW
    return each


def free_logits(plan: Plan, c: Columns) -> Array:
    """Logits of a pass without gradients that are alive beside the logits of the trained model,
    chunked if the loss is. The logits of a second model are counted in its loss."""
    if not plan.training.free_passes or plan.second is not None:
        return 0.0 * c.micro_batch
    tokens, e = tokens_of(plan, c)[0], plan.training.element_bytes
    if plan.loss_kernel == "tiled":
        return _of_tiles(plan, c) + head_input(plan, c)
    share = np.ones_like(c.tp) if plan.stack.activations.gathered_logits else c.tp
    whole = memory.logits_bytes(tokens, head_columns(plan, c.tp) * c.tp, e, share)
    return whole / loss_chunks(plan, tokens)
