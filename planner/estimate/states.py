"""Layers and parameters that one rank holds before data parallelism shards them, by layer and by
pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate.layer import padded_vocab
from planner.formulas.params import parameter_leaves
from planner.ledger import Array, Ledger, total
from planner.specs.columns import Columns
from planner.specs.model import ModelSpec
from planner.specs.plan import Plan


@dataclass(frozen=True)
class RankParameters:
    """Elements per rank. `layer` is the mean over dense and expert layers, experts apart (they have
    their own replicas)."""

    layer: Ledger  # everything but routed experts, by tensor
    experts: Array  # routed experts of one mean layer
    first: Ledger  # embedding, on the first stage
    # final norm and head, on the last stage; a tied head is a copy when there is more than one
    # stage
    last: Ledger
    dense_layer: Array  # a layer with a dense MLP
    expert_layer: Array  # a layer with experts, routed ones apart
    layer_experts: Array  # routed experts of a layer that has them

    def per_layer(self) -> Array:
        return total(self.layer) + self.experts

    def shared(self, layers: Array, with_first: Array, with_last: Array) -> Array:
        """Elements without experts of a stage with so many layers, 1 or 0 for what else it
        holds."""
        return (
            layers * total(self.layer)
            + with_first * total(self.first)
            + with_last * total(self.last)
        )

    def of_stage(self, split: StageSplit, with_first: Array, with_last: Array) -> Array:
        """Elements without routed experts of a stage, its dense and expert layers counted apart."""
        ends = with_first * total(self.first) + with_last * total(self.last)
        return split.dense * self.dense_layer + split.moe * self.expert_layer + ends


def rank_parameters(plan: Plan, c: Columns) -> RankParameters:
    """Divide every tensor of the model by what divides it: tensor parallel, expert x tensor
    parallel, or nothing."""
    model, tp, ep, pp = plan.model, c.tp, c.ep, c.pp
    layer: Ledger = {}
    first: Ledger = {}
    last: Ledger = {}
    experts: Array = np.zeros_like(tp)
    dense_layer, expert_layer, layer_experts = (np.zeros_like(tp) for _ in range(3))
    vocab = padded_vocab(plan, tp)
    for leaf in parameter_leaves(model):
        count = float(leaf.count)
        share = leaf.occurrences(model) / model.layers
        if leaf.name in ("embedding/word", "head/logits"):
            local = vocab * model.hidden / tp
        elif (
            leaf.name == "attention/qkv"
        ):  # with fewer key/value heads than ranks, each rank keeps a copy of one
            local = (
                model.hidden
                * (model.heads + 2 * np.maximum(model.kv_heads, tp))
                * model.head_dim
                / tp
            )
        elif leaf.shard == "replicated":
            local = count + 0 * tp
        else:
            local = count / tp
        if leaf.place == "first":
            first[leaf.name] = local
        elif leaf.place == "last":
            last[leaf.name] = local
        elif leaf.shard == "expert":
            experts = experts + share * local / ep
            layer_experts = layer_experts + local / ep
        else:
            layer[leaf.name] = share * local
            dense_layer = dense_layer + (leaf.place != "moe_layer") * local
            expert_layer = expert_layer + (leaf.place != "dense_layer") * local
    if model.tied_embeddings:
        last["head/logits"] = np.where(pp > 1, vocab * model.hidden / tp, 0.0)
    return RankParameters(layer, experts, first, last, dense_layer, expert_layer, layer_experts)


@dataclass(frozen=True)
class StageSplit:
    """Layers of a stage, one value per row."""

    dense: Array
    moe: Array

    @property
    def layers(self) -> Array:
        return self.dense + self.moe


def stage_split(plan: Plan, pp: Array, vpp: Array, stage: Array) -> StageSplit:
    """Layers with a dense MLP and with experts on the given stage of every row.

    Layers that divide by pp vpp are split evenly. Otherwise `layer_split` of the stack decides:
    "even": the first stages take one more; "ends count": embedding and head count as a layer each
    where that makes the split even (Megatron-LM's account_for_embedding_in_pipeline_split,
    DeepSpeed's type:transformer|embedding); "blocks": embedding, layers, final norm and head are
    dealt out as equals, the first stages taking one more (pipe_partition_uniform of Aleph Alpha
    scaling), even where layers divide; "cost": a stage takes blocks until their cumulated GEMMs
    pass its share, the head among them (nanotron, models/base.py), even where layers divide.
    """
    layers = float(plan.model.layers)
    even = np.mod(layers, pp * vpp) == 0
    least = np.floor(layers / pp)
    count = np.where(even, layers / pp, least + (stage < layers - least * pp))
    before = np.where(
        even, stage * layers / pp, stage * least + np.minimum(stage, layers - least * pp)
    )
    if plan.stack.counts_ends:
        ends = ~even & (pp > 1) & (np.mod(layers + 2, pp * vpp) == 0)
        one = (layers + 2) / pp
        count = np.where(ends, one - (stage == 0) - (stage == pp - 1), count)
        before = np.where(ends, np.maximum(stage * one - 1, 0.0), before)
    elif plan.stack.layer_split == "blocks":
        least, more = np.floor((layers + 3) / pp), np.mod(layers + 3, pp)
        upto, since = (
            np.clip(s * least + np.minimum(s, more) - 1, 0.0, layers) for s in (stage + 1, stage)
        )
        count, before = np.where(pp > 1, upto - since, count), np.where(pp > 1, since, before)
    elif plan.stack.layer_split == "cost":
        share = (layers + _head_in_layers(plan.model)) / pp
        to, start = (
            np.where(s > 0, np.minimum(np.floor(s * share * (1 + 1e-12)) + 1, layers), 0.0)
            for s in (stage + 1, stage)
        )
        alone = np.where(stage == pp - 1, layers, to)
        count, before = np.where(pp > 1, alone - start, count), np.where(pp > 1, start, before)
    moe = _expert_layers(plan.model, count, before, pp, vpp)
    return StageSplit(count - moe, moe)


def _head_in_layers(model: ModelSpec) -> float:
    """FLOP of the head's GEMMs over those of a mean layer."""
    inner = [
        leaf
        for leaf in parameter_leaves(model)
        if leaf.matmul and leaf.place not in ("first", "last")
    ]
    return (
        model.padded_vocab
        * model.hidden
        * model.layers
        / sum(leaf.count * leaf.occurrences(model) for leaf in inner)
    )


def _expert_layers(model: ModelSpec, count: Array, before: Array, pp: Array, vpp: Array) -> Array:
    """Layers with experts among `count` layers after `before`; virtual stages take theirs from pp
    chunks apart."""
    if model.moe is None:
        return np.zeros_like(count)
    if model.moe.every > 1:
        return count * model.moe_layers / model.layers
    dense = float(model.dense_layers)
    chunk = count / vpp
    found = np.zeros_like(count)
    for turn in range(int(np.max(vpp))):
        start = np.where(vpp > 1, before / vpp + turn * chunk * pp, before)
        here = turn < vpp
        found = found + np.where(here, np.clip(dense - start, 0.0, chunk), 0.0)
    return count - found
