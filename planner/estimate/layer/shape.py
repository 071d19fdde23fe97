"""What one rank works on in a layer: tokens, experts and widths, after tensor, context and expert
parallelism have divided them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from planner.estimate import uneven
from planner.formulas import experts, flops
from planner.ledger import Array
from planner.specs.columns import ByName, Columns
from planner.specs.plan import Plan

# the columns that the cost of a layer depends on: the arguments of `local_shape`
KEY = ("tp", "cp", "ep", "micro_batch", "sequence_parallel")

T = TypeVar("T")


@dataclass(frozen=True)
class BothWays(Generic[T]):
    """The same of the forward and of the backward pass."""

    forward: T
    backward: T


@dataclass(frozen=True)
class LayerShape:
    """One value per combination of the columns of KEY."""

    plan: Plan
    tp: Array
    cp: Array
    ep: Array
    micro_batch: Array
    sequence_parallel: Array  # whether norms and residuals see a share of the tokens
    tokens: Array  # of a micro-batch on this rank
    local_tokens: Array  # those that norms and residuals see
    etp: Array  # ranks that split every routed expert
    experts: Array  # routed experts of this rank, whole or split; 0 for a model without
    vocab: Array  # padded, of all tensor-parallel ranks
    # FLOP of scores and weighted values forward, of the pairs that the causal mask, windows and
    # packed documents leave
    causal_flop: Array

    @property
    def routed(self) -> Array:
        """Copies of tokens that the experts of the fullest rank work on."""
        moe = self.plan.model.moe
        per_token = 0.0 if moe is None else float(moe.experts_per_token)
        fullest = self.plan.training.fullest_rank
        return (
            fullest
            * per_token
            * experts.gathered_tokens(self.tokens, self.tp, self.etp, self.sequence_parallel)
        )


def key_of(c: Columns) -> ByName:
    """The columns of a table that `local_shape` takes."""
    return {name: getattr(c, name) for name in KEY}


def local_shape(
    plan: Plan, *, tp: Array, cp: Array, ep: Array, micro_batch: Array, sequence_parallel: Array
) -> LayerShape:
    """The shape of a layer on one rank, for each combination of these columns."""
    model, seq_len = plan.model, float(plan.training.seq_len)
    tokens = micro_batch * plan.training.seq_len / cp
    sequence = sequence_parallel > 0
    qk, v = flops.head_widths(model)

    def attention_flop(pairs: float) -> Array:
        each = pairs * micro_batch / cp
        return flops.attention_forward_flop(each, model.heads / tp, float(qk), float(v))

    return LayerShape(
        plan=plan,
        tp=tp,
        cp=cp,
        ep=ep,
        micro_batch=micro_batch,
        sequence_parallel=sequence,
        tokens=tokens,
        local_tokens=tokens / np.where(sequence, tp, 1.0),
        etp=experts.tensor_of(plan, tp),
        experts=0.0 * ep if model.moe is None else np.maximum(model.moe.experts / ep, 1.0),
        vocab=padded_vocab(plan, tp),
        causal_flop=attention_flop(flops.mean_pairs(model, seq_len) * uneven.attended_frac(plan)),
    )


def padded_vocab(plan: Plan, tp: Array) -> Array:
    """Vocabulary after the padding of model and stack: a multiple of vocab_multiple * tp."""
    multiple = plan.stack.vocab_multiple * np.where(plan.stack.vocab_multiple > 1, tp, 1.0)
    return np.ceil(plan.model.padded_vocab / multiple) * multiple
