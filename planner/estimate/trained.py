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
from planner.specs.towers import kind_plan


@dataclass(frozen=True)
class Weights:
    """Elements per rank: all, and trainable ones, which have gradients and states; trainable
    elements of layers are counted for one trained layer."""

    every: RankParameters
    trained: RankParameters


ADAPTERS = "adapters"  # leaf of what is trained of a layer
TRAINED = "trained"  # leaf of a layer of which parts are frozen
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
    """Trainable elements per rank, which have gradients and states; elements of layers are counted
    for one trained layer.

    p: all elements. Adapters of a matrix that tensor-parallel ranks share are divided as it is: A
    by its rank or its rows, B by its columns (ParallelLinearAdapter of Megatron-Bridge).
    """
    training, nothing = plan.training, 0.0 * p.experts
    if not plan.partial or plan.random_layers is not None:
        return p
    ends = dict.fromkeys((_WORDS,), p.words) if plan.trains_words else {}
    head = p.last.get(_HEAD, nothing)
    if training.adapter is None:
        if plan.trained_layers is not None and plan.trained_layers.words:
            ends = p.first
        kept = p.last if plan.trains_head else {**p.last, _HEAD: nothing}
        return _partly(plan, replace(p, first=ends, last=kept))
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


def _partly(plan: Plan, p: RankParameters) -> RankParameters:
    """Elements of layers of which some parts are frozen."""
    layers = plan.trained_layers
    if layers is None or not layers.frozen:
        return p
    known = memory_kinds(plan.model)
    shares = [_trained_frac(plan, kind) for kind in known.kinds]
    dense, experts = (
        tuple(share * n for share, n in zip(shares, each, strict=True))
        for each in (p.kinds, p.kinds_experts)
    )
    counts = [count / plan.model.layers for count in known.counts]
    layer, routed = (
        functools.reduce(np.add, (n * x for n, x in zip(counts, each, strict=True)))
        for each in (dense, experts)
    )
    return replace(p, layer={TRAINED: layer}, experts=routed, kinds=dense, kinds_experts=experts)


def _trained_frac(plan: Plan, kind: Kind) -> float:
    """Share of the elements of a layer of a kind that no name freezes."""
    every = sum(tensor.count for tensor in layer_tensors(plan.model, kind))
    kept = sum(tensor.count for tensor in layer_tensors(plan.model, unfrozen(plan, kind)))
    return kept / every if every else 0.0


def unfrozen(plan: Plan, kind: Kind) -> Kind:
    """A kind of layer without its frozen parts, and without norms before blocks of nothing else."""
    layers = plan.trained_layers
    frozen = layers.frozen if layers is not None else frozenset()
    blocks = tuple(tuple(x for x in block if x.name not in frozen) for block in kind.blocks)
    kept = tuple(block for block in blocks if block)
    return replace(kind, blocks=kept, norms=kind.norms * len(kept) // max(len(kind.blocks), 1))


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
    names = [_WORDS] * plan.trains_words + [_HEAD] * plan.trains_head
    first = plan.trained_layers is not None and plan.trained_layers.words
    count = sum(
        leaf.count for leaf in leaves if leaf.name in names or (first and leaf.place == "first")
    )
    spec = training.adapter
    if spec is not None:
        each = [
            sum(adapter_elements(matrix, spec) for matrix in kind_adapters(plan, kind))
            for kind in layers_by_kind.kinds
        ]
        return count + spec.resident * sum(
            n * x for n, x in zip(layers_by_kind.counts, each, strict=True)
        )
    kept = sum(
        leaf.count * leaf.times for leaf in leaves if leaf.place == "last" and leaf.name != _HEAD
    )
    return count + kept + _of_layers(plan, layers_by_kind.order[-(plan.backward_layers or 0) :])


def _of_layers(plan: Plan, order: tuple[int, ...]) -> int:
    """Elements of these layers."""
    model, kinds = plan.model, layers_of(plan.model).kinds
    each = {
        i: sum(tensor.count for tensor in layer_tensors(model, unfrozen(plan, kinds[i])))
        for i in set(order)
    }
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
        if (chosen := plan.trained_layers) is not None and chosen.frozen:
            above, trained = _gemms_above(plan)
        return layers + head, above + head, trained + trained_head
    trained = _adapter_weights(plan)
    return layers + head + trained, layers + head + trained, trained + trained_head


def _gemms_above(plan: Plan) -> tuple[float, float]:
    """Weights of GEMMs of layers that a token meets where blocks are frozen by name: those from the
    first trained layer on, and the trained ones."""
    model, above, trained = plan.model, 0.0, 0.0
    known = layers_of(model)
    shares = last_shares(known, plan.backward_layers)
    for kind, count, share in zip(known.kinds, known.counts, shares, strict=True):
        for chosen, is_above in ((kind, True), (unfrozen(plan, kind), False)):
            weights = share * count * _met(plan, chosen)
            above, trained = above + weights * is_above, trained + weights * (not is_above)
    return above, trained


def _met(plan: Plan, kind: Kind) -> float:
    """Weights of GEMMs of a layer of a kind that a token of the sequence meets."""
    length = plan.training.seq_len
    tower, in_tower = kind_plan(plan, kind)
    tensors = (x for x in layer_tensors(tower.model, in_tower) if x.matmul)
    active = ((x, x.count * x.active_frac[0] / x.active_frac[1]) for x in tensors)
    return float(sum(n * x.used(tower.training.seq_len) / length for x, n in active))


def _adapter_weights(plan: Plan) -> float:
    """Adapter parameters active per token, routed experts included."""
    spec, moe, kinds = plan.training.adapter, plan.model.routed, layers_of(plan.model)
    if spec is None:
        return 0.0
    sent = moe.per_token / moe.experts if moe is not None else 1.0
    length = float(plan.training.seq_len)

    def met(matrix: Matrix) -> float:
        rows, every_use = matrix.rows, replace(matrix, again=False)
        often = float(rows.at(1.0, length)) / length if rows is not None else 1.0
        return adapter_elements(every_use, spec) * (sent if matrix.experts else often)

    return float(
        sum(
            count * met(matrix)
            for kind, count in zip(kinds.kinds, kinds.counts, strict=True)
            for matrix in kind_adapters(plan, kind)
        )
    )
