"""Trained part of a rank's weights if some are frozen: adapters beside them, or the last layers."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from planner.estimate.stages import Repeated, StageSplit
from planner.estimate.states import RankParameters, rank_parameters
from planner.formulas.experts import tensor_of
from planner.formulas.flops import matmul_weights
from planner.formulas.params import layer_tensors, parameter_leaves, stream_of
from planner.ledger import Array, Ledger, total
from planner.specs.adapters import Matrix, adapted, adapter_elements
from planner.specs.columns import Columns
from planner.specs.layers import Kind, last_shares, layers_of, memory_kinds
from planner.specs.plan import Plan


@dataclass(frozen=True)
class Weights:
    """Elements per rank: all, and trainable ones, which have gradients and states; trainable
    elements of layers are of one trained layer."""

    every: RankParameters
    trained: RankParameters


ADAPTERS = "adapters"  # leaf of what is trained of a layer
_WORDS, _HEAD = "embedding/word", "head/logits"


def weights_of(plan: Plan, c: Columns) -> Weights:
    """Weights that every rank holds and trains."""
    every = rank_parameters(plan, c)
    return Weights(every, trained_parameters(plan, c, every))


def kind_adapters(plan: Plan, kind: Kind) -> tuple[Matrix, ...]:
    """The matrices of a layer of a kind that have adapters; empty under full training."""
    spec = plan.training.adapter
    if spec is None:
        return ()
    stream, joint = stream_of(plan.model, kind), plan.joint
    return tuple(matrix for part in kind.parts for matrix in adapted(part, stream, spec, joint))


def trained_parameters(plan: Plan, c: Columns, p: RankParameters) -> RankParameters:
    """Trainable elements per rank, which have gradients and states; elements of layers are of one
    trained layer.

    p: all elements. Adapters of a matrix that tensor-parallel ranks share are divided as it is: A
    by its rank or its rows, B by its columns (ParallelLinearAdapter of Megatron-Bridge).
    """
    training, nothing = plan.training, 0.0 * p.experts
    if not plan.partial or plan.random_layers is not None:
        return p
    ends = dict.fromkeys((_WORDS,), p.words) if training.train_embeddings else {}
    head = p.last.get(_HEAD, nothing)
    if training.adapter is None:
        copied = plan.model.tied_embeddings and not training.train_embeddings
        return replace(p, first=ends, last={**p.last, _HEAD: nothing} if copied else p.last)
    sharing = c.ep * tensor_of(plan, c.tp)
    spec, known = training.adapter, memory_kinds(plan.model)
    dense_by_kind: list[Array] = []
    routed: list[Array] = []
    for kind in known.kinds:
        dense, experts = 0.0, 0.0
        for matrix in kind_adapters(plan, kind):
            elements = float(spec.resident * adapter_elements(matrix, spec))
            dense, experts = (
                (dense, experts + elements) if matrix.experts else (dense + elements, experts)
            )
        dense_by_kind.append(dense / c.tp + nothing)
        routed.append(experts / sharing + nothing)

    def mean(each: list[Array]) -> Array:
        shares = (count / plan.model.layers for count in known.counts)
        return functools.reduce(np.add, (n * x for n, x in zip(shares, each, strict=True)))

    # a head that is new is trained whole (modules_to_save of PEFT for TaskType.SEQ_CLS)
    last: Ledger = {_HEAD: head} if plan.trains_head else {}
    return RankParameters(
        {ADAPTERS: mean(dense_by_kind)},
        mean(routed),
        ends,
        last,
        tuple(dense_by_kind),
        tuple(routed),
    )


def trained_split(plan: Plan, split: StageSplit) -> StageSplit:
    """The layers of a stage whose weights are trained."""
    if plan.random_layers is None:
        return backward_split(plan, split)
    return replace(split, kinds=tuple(n * plan.gradients_frac for n in split.kinds))


def backward_split(plan: Plan, split: StageSplit) -> StageSplit:
    """The layers of a stage with a backward pass: all above the first that is trained, and where
    embeddings are, all."""
    if plan.backward_layers is None:
        return split
    shares = last_shares(memory_kinds(plan.model), plan.backward_layers)
    kinds = tuple(n * share for n, share in zip(split.kinds, shares, strict=True))
    return replace(split, kinds=kinds)


def trained_again(plan: Plan, again: Repeated) -> Repeated:
    """Recomputation of layers with a backward pass; the frozen ones below keep nothing."""
    if plan.backward_layers is None:
        return again
    shares = last_shares(memory_kinds(plan.model), plan.backward_layers)
    kinds = tuple(n * share for n, share in zip(again.kinds, shares, strict=True))
    return replace(again, inputs=again.inputs * backward_share(plan), kinds=kinds)


def backward_share(plan: Plan) -> float:
    """Share of all layers with a backward pass."""
    layers = plan.backward_layers
    return 1.0 if layers is None else min(layers / plan.model.layers, 1.0)


def trained_share(plan: Plan) -> float:
    """Share of all layers of which something is trained, at a time."""
    layers = plan.random_layers
    return backward_share(plan) if layers is None else layers / plan.model.layers


def trained_count(plan: Plan) -> int:
    """Elements that are trained of the whole model, exact."""
    training, model = plan.training, plan.model
    leaves = parameter_leaves(model)
    every = sum(leaf.count * leaf.times for leaf in leaves)
    if not plan.partial:
        return every
    layers_by_kind = layers_of(model)
    if plan.random_layers is not None:  # a mean over layers that are not all alike
        inner = sum(leaf.count * leaf.times for leaf in leaves if leaf.place == "layer")
        return every - inner + round(inner * plan.gradients_frac)
    names = (_WORDS, _HEAD) if training.train_embeddings else (_HEAD,)
    ends = training.train_embeddings or (plan.trains_head and training.adapter is not None)
    count = ends * sum(leaf.count for leaf in leaves if leaf.name in names)
    spec = training.adapter
    if spec is not None:
        each = [
            sum(adapter_elements(matrix, spec) for matrix in kind_adapters(plan, kind))
            for kind in layers_by_kind.kinds
        ]
        return count + spec.resident * sum(
            n * x for n, x in zip(layers_by_kind.counts, each, strict=True)
        )
    kept = sum(leaf.count * leaf.times for leaf in leaves if leaf.place == "last")
    if training.train_embeddings:
        kept = sum(leaf.count for leaf in leaves if leaf.place == "last" and leaf.name != _HEAD)
    return count + kept + _of_layers(plan, layers_by_kind.order[-(plan.backward_layers or 0) :])


def _of_layers(plan: Plan, order: tuple[int, ...]) -> int:
    """Elements of these layers."""
    model, kinds = plan.model, layers_of(plan.model).kinds
    each = {i: sum(tensor.count for tensor in layer_tensors(model, kinds[i])) for i in set(order)}
    return sum(each[i] for i in order)


def trained_gemms(plan: Plan) -> tuple[float, float, float]:
    """Weights of GEMMs that a token meets, adapters among them: all, those from the first trained
    layer on, and the trained ones."""
    training, model = plan.training, plan.model
    every = matmul_weights(model, training.seq_len)
    head = every.get(_HEAD, 0.0)
    trained_head = head * plan.trains_head
    layers = total(every) - head
    if training.adapter is None:
        above, trained = backward_share(plan) * layers, trained_share(plan) * layers
        return layers + head, above + head, trained + trained_head
    trained = _adapter_weights(plan)
    return layers + head + trained, layers + head + trained, trained + trained_head


def _adapter_weights(plan: Plan) -> float:
    """Adapter parameters active per token, routed experts included."""
    spec, moe, kinds = plan.training.adapter, plan.model.routed, layers_of(plan.model)
    if spec is None:
        return 0.0
    sent = moe.per_token / moe.experts if moe is not None else 1.0
    return float(
        sum(
            count * adapter_elements(matrix, spec) * (sent if matrix.experts else 1.0)
            for kind, count in zip(kinds.kinds, kinds.counts, strict=True)
            for matrix in kind_adapters(plan, kind)
        )
    )
