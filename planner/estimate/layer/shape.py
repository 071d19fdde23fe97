"""Per-rank sizes of a layer: tokens, experts and widths after division by tensor, context and
expert parallelism."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from planner.estimate import uneven
from planner.formulas import experts, flops
from planner.ledger import Array
from planner.specs.columns import ByName, Columns
from planner.specs.layers import Mix, mix_of
from planner.specs.parts import Batched, Core, Scan
from planner.specs.parts.base import Ranks
from planner.specs.plan import Plan

# the columns that the cost of a layer depends on: the arguments of `local_shape`
KEY = ("tp", "cp", "ep", "micro_batch", "sequence_parallel")
_ZERO_3 = 3

T = TypeVar("T")


@dataclass(frozen=True)
class BothWays(Generic[T]):
    """A pair of values for the forward and the backward pass."""

    forward: T
    backward: T


@dataclass(frozen=True)
class LayerShape:
    """One value per combination of the columns of KEY."""

    plan: Plan
    mix: Mix  # the layers that it is the mean of: all, or all of a kind
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
    length: Array  # of a row: its root mean square, as attention counts it
    hooked: Array  # 1 where hooks of ZeRO-3 run around every module, see `hooked_of`

    @functools.cached_property
    def core_flop(self) -> Array:
        """Forward FLOP of all cores of the mean layer; scores only of pairs that masks, windows and
        packed documents leave."""
        mix = self.mix
        each = (core_flop(self, core) * (count / mix.layers) for core, count in mix.cores)
        return sum(each) + 0.0 * self.tokens

    def of_plan(self, plan: Plan) -> LayerShape:
        """The shape under the plan of a tower."""
        if plan is self.plan:
            return self
        return local_shape(plan, **{name: getattr(self, name) for name in (*KEY, "hooked")})

    @property
    def routed(self) -> Array:
        """Copies of tokens that the experts of the fullest rank work on."""
        return self.fullest * self.evenly_routed

    @property
    def evenly_routed(self) -> Array:
        """The shape of the mean rank, with tokens routed evenly."""
        moe = self.plan.model.routed
        per_token = 0.0 if moe is None else moe.per_token
        return per_token * experts.gathered_tokens(
            self.tokens, self.tp, self.etp, self.sequence_parallel
        )

    @property
    def traced_ranks(self) -> dict[Ranks, Array]:
        """Ranks that divide what a traced block counts, by how they have a tensor."""
        ones, moe = np.ones_like(self.tokens), self.plan.model.routed
        copies = ones if moe is None else moe.per_token * self.tokens / self.routed
        return {
            "whole": ones,
            "divided": self.tp,
            "tokens": self.tokens / self.local_tokens,
            "routed": copies,
            "experts": copies * self.etp,
        }

    @property
    def fullest(self) -> Array:
        """Load of the fullest rank of experts over the mean."""
        if self.plan.model.routed is None:
            return 1.0 + 0.0 * self.tokens
        return experts.load_of(self.plan, self.ep, self.experts, self.evenly_routed)


def key_of(c: Columns) -> ByName:
    """The columns of a table that `local_shape` takes."""
    return {name: getattr(c, name) for name in KEY}


def hooked_of(plan: Plan, c: Columns) -> ByName:
    """A further column of `local_shape`, where the stack's ZeRO-3 takes the CPU's time. On one
    replica no stage shards anything, so that no layout names it: it is taken to be 3, and with
    adapters 2, as in the scripts of the published runs of DeepSpeed on one GPU (QwenLM/Qwen)."""
    if not float(plan.stack.launch.operators_per_module):
        return {}
    alone = (c.replicas == 1) & (plan.training.adapter is None)
    return {"hooked": 1.0 * ((c.zero >= _ZERO_3) | alone)}


def local_shape(
    plan: Plan,
    *,
    tp: Array,
    cp: Array,
    ep: Array,
    micro_batch: Array,
    sequence_parallel: Array,
    **further: Array,
) -> LayerShape:
    """The shape of the mean layer on one rank, for each combination of these columns. further:
    the columns of `hooked_of`."""
    model = plan.model
    computed = uneven.computed_frac(plan, micro_batch)
    tokens = micro_batch * plan.training.seq_len * computed / cp
    sequence = sequence_parallel > 0
    return LayerShape(
        plan=plan,
        mix=mix_of(model),
        tp=tp,
        cp=cp,
        ep=ep,
        micro_batch=micro_batch,
        sequence_parallel=sequence,
        tokens=tokens,
        local_tokens=tokens / np.where(sequence, tp, 1.0),
        etp=experts.tensor_of(plan, tp),
        experts=0.0 * ep if model.routed is None else np.maximum(model.routed.experts / ep, 1.0),
        vocab=padded_vocab(plan, tp),
        length=plan.training.seq_len * np.sqrt(uneven.computed_frac(plan, micro_batch, 2.0)),
        hooked=further.get("hooked", np.zeros(1)),
    )


def core_flop(shape: LayerShape, core: Core) -> Array:
    """FLOP forward of a core on one rank, over the sequences of a micro-batch."""
    if isinstance(core, Scan):
        return flops.core_forward_flop(core, shape.tokens) / shape.tp
    if isinstance(core, Batched):
        whole = core.flop(shape.micro_batch, shape.length / shape.cp)
        return whole / shape.tp if core.split else whole
    pairs = flops.core_pairs(core, shape.length, shape.cp)
    pairs = pairs * uneven.attended_frac(shape.plan, core) * shape.micro_batch
    heads = core.heads / shape.tp if core.split else core.heads + 0.0 * shape.tp
    return flops.attention_forward_flop(
        pairs, heads, float(core.query_width), float(core.value_width)
    )


def padded_vocab(plan: Plan, tp: Array) -> Array:
    """Vocabulary after the padding of model and stack: a multiple of vocab_multiple * tp."""
    multiple = plan.stack.vocab_multiple * np.where(plan.stack.vocab_multiple > 1, tp, 1.0)
    return np.ceil(plan.model.padded_vocab / multiple) * multiple


def head_columns(plan: Plan, tp: Array) -> Array:
    """Columns of the head on one rank: of words its share of them, of other outputs all."""
    outputs = plan.model.outputs
    return padded_vocab(plan, tp) / tp if outputs is None else outputs + 0.0 * tp
