"""Parameters that one rank holds before data parallelism shards them, by layer and by pipeline
stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate.layer import padded_vocab
from planner.estimate.stages import StageSplit
from planner.formulas.experts import tensor_of
from planner.formulas.params import parameter_leaves
from planner.ledger import Array, Ledger, total
from planner.specs.columns import Columns
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
    """Divide every tensor of the model by what divides it: tensor parallel, expert x expert tensor
    parallel, or nothing."""
    model, tp, ep, pp = plan.model, c.tp, c.ep, c.pp
    etp = tensor_of(plan, tp)
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
            local = count / (ep * etp)
            experts = experts + share * local
            layer_experts = layer_experts + local
        else:
            layer[leaf.name] = share * local
            dense_layer = dense_layer + (leaf.place != "moe_layer") * local
            expert_layer = expert_layer + (leaf.place != "dense_layer") * local
    if model.tied_embeddings:
        last["head/logits"] = np.where(pp > 1, vocab * model.hidden / tp, 0.0)
    return RankParameters(layer, experts, first, last, dense_layer, expert_layer, layer_experts)
