"""Parameters that one rank holds before data parallelism shards them, by layer and by pipeline
stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate.layer import padded_vocab
from planner.estimate.stages import StageSplit
from planner.formulas.experts import tensor_of
from planner.formulas.params import layer_tensors, parameter_leaves
from planner.ledger import Array, Ledger, total
from planner.specs.columns import Columns
from planner.specs.layers import Kind, layers_of
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
        share = leaf.times / model.layers
        if leaf.name in ("embedding/word", "head/logits"):
            local = vocab * model.hidden / tp
        else:
            local = leaf.local(tp)
        if leaf.place == "first":
            first[leaf.name] = local
        elif leaf.place == "last":
            last[leaf.name] = local
        elif leaf.shard == "expert":
            experts = experts + share * leaf.count / (ep * etp)
        else:
            layer[leaf.name] = layer.get(leaf.name, 0.0) + share * local
    layers = layers_of(model).kinds
    for kind in layers:
        own, routed = _of_kind(model, kind, tp, ep * etp)
        if any(part.type == "moe" for part in kind.parts):
            expert_layer, layer_experts = own, routed
        else:
            dense_layer = own
    if model.tied_embeddings:
        last["head/logits"] = np.where(pp > 1, vocab * model.hidden / tp, 0.0)
    return RankParameters(layer, experts, first, last, dense_layer, expert_layer, layer_experts)


def _of_kind(model: ModelSpec, kind: Kind, tp: Array, sharing: Array) -> tuple[Array, Array]:
    """Elements of a layer of a kind on one rank: all but routed experts, and those."""
    own, routed = np.zeros_like(tp), np.zeros_like(tp)
    for tensor in layer_tensors(model, kind):
        if tensor.shard == "expert":
            routed = routed + tensor.count / sharing
        else:
            own = own + tensor.local(tp)
    return own, routed
