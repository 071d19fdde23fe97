"""Optimizer states per tensor of a rank, and the ledger of bytes per parameter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate.matrices import Matrix, layer_matrices
from planner.estimate.state_types import moment_type_bytes, state_of
from planner.estimate.states import RankParameters, rank_parameters
from planner.estimate.trained import weights_of
from planner.formulas.optimizers import OPTIMIZERS, TYPE_BYTES, Optimizer, optimizer_of
from planner.formulas.params import parameter_count
from planner.ledger import Array, total
from planner.specs.columns import Columns
from planner.specs.layout import Layout
from planner.specs.plan import Plan

_ALONE = Layout(
    tp=1,
    pp=1,
    vpp=1,
    dp=1,
    cp=1,
    ep=1,
    zero=0,
    shard_group=1,
    sequence_parallel=False,
    recompute="none",
    schedule="1f1b",
    micro_batch=1,
)


@dataclass(frozen=True)
class Moments:
    """Bytes per element that the optimizer keeps beside the master copy, on one rank."""

    layers: Array  # of layers, routed experts apart
    experts: Array
    ends: Array  # embedding, final norm and head


def _optimizer(plan: Plan) -> Optimizer:
    return optimizer_of(plan.training.optimizer, plan.training.optimizer_rank)


def moments(plan: Plan, c: Columns, p: RankParameters) -> Moments:
    """Optimizer states of a plan per element."""
    optimizer, each = _optimizer(plan), moment_type_bytes(plan)
    if not optimizer.whole and not optimizer.smallest:
        same = optimizer.moment_bytes(each) + 0.0 * c.tp
        return Moments(same, same, same)
    rest = optimizer if optimizer.rest is None else OPTIMIZERS[optimizer.rest]
    every = layer_matrices(plan, c.tp, c.ep)
    dense, routed = ([m for m in every if m.routed is which] for which in (False, True))
    vectors = _vector_bytes(rest, plan.model.hidden, each)
    columns = float(plan.model.hidden)
    rows = p.first.get("embedding/word", plan.model.padded_vocab * columns) / columns
    table = rest.matrix_bytes(rows, columns, each) / np.maximum(rows * columns, 1.0)
    ends = np.where(rows > 0, table, vectors)  # a model of images has no table of words
    layers = _mean(optimizer, dense, total(p.layer), vectors, each)
    return Moments(layers, _mean(optimizer, routed, p.experts, vectors, each), ends + 0.0 * layers)


def _vector_bytes(rest: Optimizer, hidden: int, each: float | None) -> float:
    """Bytes per element of norms and biases."""
    if rest.factored:  # whole second moments
        return rest.element if each is None else each
    if hidden < rest.smallest:
        return rest.moments * TYPE_BYTES["fp32"]
    return rest.moment_bytes(each)


def _mean(
    optimizer: Optimizer,
    matrices: list[Matrix],
    elements: Array,
    vectors: float,
    each: float | None,
) -> Array:
    """Mean optimizer-state bytes per element; `elements` in total, of which `matrices` have states
    by matrix."""
    inside = sum((m.elements for m in matrices), start=0.0 * elements)
    kept = sum(
        (m.count * optimizer.matrix_bytes(m.rows, m.columns, each) for m in matrices),
        start=0.0 * elements,
    )
    others = np.maximum(elements - inside, 0.0)
    return (kept + vectors * others) / np.maximum(inside + others, 1.0)


def state_ledger(plan: Plan) -> dict[str, float]:
    """Bytes per parameter: parameters, gradients, optimizer (fp32 master copy and moments, a mean
    over the model on one rank)."""
    training, state = plan.training, state_of(plan)
    kept = _mean_moments(plan)
    if not training.mixed_precision:
        return {"parameters": 4.0, "gradients": 4.0, "optimizer": kept}
    return {
        "parameters": state.parameter,
        "gradients": state.gradient,
        "optimizer": state.master + kept,
    }


def _mean_moments(plan: Plan) -> float:
    optimizer = _optimizer(plan)
    if not optimizer.whole and not optimizer.smallest:
        return optimizer.moment_bytes(moment_type_bytes(plan))
    c = Columns.of([_ALONE], 1)
    p = rank_parameters(plan, c)
    if plan.training.adapter is not None:  # of what is trained
        return float(moments(plan, c, weights_of(plan, c).trained).layers[0])
    states, layers = moments(plan, c, p), plan.model.layers
    inside = layers * (total(p.layer) * states.layers + p.experts * states.experts)
    counted = layers * (total(p.layer) + p.experts)
    every = parameter_count(plan.model)
    return float((inside[0] + (every - counted[0]) * states.ends[0]) / every)
