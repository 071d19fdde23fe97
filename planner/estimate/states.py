"""Parameters that one rank holds before data parallelism shards them, by layer and by pipeline
stage."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from planner.estimate.layer import padded_vocab
from planner.estimate.stages import StageSplit
from planner.formulas.experts import tensor_of
from planner.formulas.params import layer_tensors, parameter_leaves
from planner.formulas.stages import mtp_layers
from planner.ledger import Array, Ledger, total
from planner.specs.columns import Columns
from planner.specs.layers import Kind, memory_kinds
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
    kinds: tuple[Array, ...]  # a layer of each kind, routed experts apart
    kinds_experts: tuple[Array, ...]  # routed experts of a layer of each kind

    def per_layer(self) -> Array:
        return total(self.layer) + self.experts

    def of_stage(self, split: StageSplit, with_first: Array, with_last: Array) -> Array:
        """Elements without routed experts of a stage, layers of each kind counted apart."""
        ends = with_first * total(self.first) + with_last * total(self.last)
        return sum(n * each for n, each in zip(split.kinds, self.kinds, strict=True)) + ends

    def experts_of_stage(self, split: StageSplit) -> Array:
        """Elements of the routed experts of a stage."""
        each = zip(split.kinds, self.kinds_experts, strict=True)
        return sum((n * elements for n, elements in each), start=0.0 * self.experts)

    @property
    def largest(self) -> Array:
        """Elements of the largest layer, routed experts apart."""
        return functools.reduce(np.maximum, self.kinds)

    @property
    def words(self) -> Array:
        """Elements of the table of words."""
        return self.first.get("embedding/word", 0.0 * self.experts)

    @property
    def most_experts(self) -> Array:
        """Elements of the routed experts of a layer that has them."""
        return functools.reduce(np.maximum, self.kinds_experts)


def rank_parameters(plan: Plan, c: Columns) -> RankParameters:
    """Divide every tensor of the model by its parallel degree: tensor parallel, expert x expert
    tensor parallel, or nothing."""
    model, tp, ep, pp = plan.model, c.tp, c.ep, c.pp
    etp = tensor_of(plan, tp)
    layer: Ledger = {}
    first: Ledger = {}
    last: Ledger = {}
    experts: Array = np.zeros_like(tp)
    vocab = padded_vocab(plan, tp)
    for leaf in parameter_leaves(model):
        share = leaf.times / model.layers
        words = leaf.name == "head/logits" and model.outputs is None
        if words or leaf.name == "embedding/word":
            local = vocab * model.hidden / tp
        else:
            local = leaf.local(tp)
        if leaf.place == "mtp":
            if leaf.name.startswith("mtp"):  # its layers are counted with its stage
                last[leaf.name] = local * leaf.times
            continue
        if leaf.place == "first":
            first[leaf.name] = local
        elif leaf.place == "last":
            last[leaf.name] = local
        elif leaf.shard == "expert":
            experts = experts + share * leaf.count / (ep * etp)
        else:
            layer[leaf.name] = layer.get(leaf.name, 0.0) + share * local
    if model.tied_embeddings:
        last["head/logits"] = np.where(pp > 1, vocab * model.hidden / tp, 0.0)
    elif mtp_layers(plan):  # whose modules read words, too: a copy, as of a tied head
        last["mtp/embedding"] = np.where(pp > 1, vocab * model.hidden / tp, 0.0)
    by_kind = [_of_kind(model, kind, tp, ep * etp) for kind in memory_kinds(model).kinds]
    dense, routed = (tuple(each) for each in zip(*by_kind, strict=True))
    return RankParameters(layer, experts, first, last, dense, routed)


def _of_kind(model: ModelSpec, kind: Kind, tp: Array, sharing: Array) -> tuple[Array, Array]:
    """Elements of a layer of a kind on one rank: all but routed experts, and those."""
    dense, routed = np.zeros_like(tp), np.zeros_like(tp)
    for tensor in layer_tensors(model, kind):
        if tensor.shard == "expert":
            routed = routed + tensor.count / sharing
        else:
            dense = dense + tensor.local(tp)
    return dense, routed
