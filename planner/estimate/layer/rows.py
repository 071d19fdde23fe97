"""A layer of every kind and row of a table of layouts: gathered from distinct combinations, with
communication, launches and recompute."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.estimate.communicate import Collective
from planner.estimate.factored import distinct_combinations, is_factored
from planner.estimate.layer import (
    ADAPTER_GEMMS,
    LayerCost,
    ModelCost,
    again,
    dispatch,
    launch_law,
    model_cost,
)
from planner.estimate.layer.collectives import each_of
from planner.estimate.layer.shape import hooked_of, key_of
from planner.estimate.machine import Machine
from planner.estimate.stages import repeated_share
from planner.formulas import pipeline, recompute
from planner.formulas.experts import tensor_of
from planner.ledger import Array, Ledger, each, merge, rowwise, total
from planner.schedules.base import Work
from planner.specs.columns import Columns, unique_rows
from planner.specs.layers import last_shares, timed_kinds, timed_shares
from planner.specs.plan import Plan


def cost_of_rows(plan: Plan, m: Machine, c: Columns) -> ModelCost:
    """`model_cost` of every row."""
    combinations, spread = combinations_of(m, c, key_of(c) | hooked_of(plan, c))
    cost: ModelCost = each(model_cost(plan, m, **combinations), spread)
    if plan.backward_layers is None:
        return cost
    shares = backward_shares(plan)
    kinds = tuple(_above(kind, share) for kind, share in zip(cost.kinds, shares, strict=True))
    return replace(cost, kinds=kinds)


def backward_shares(plan: Plan) -> tuple[float, ...]:
    """Share of the layers of every kind that differs in time that have a backward pass."""
    return last_shares(timed_kinds(plan.model), plan.backward_layers)


def _above(unit: LayerCost, share: float) -> LayerCost:
    """The mean layer of a kind of which a share has a backward pass."""
    calls = ("backward", "hidden_backward")
    return replace(
        unit,
        backward={name: share * leaf for name, leaf in unit.backward.items()},
        launch_backward=share * unit.launch_backward,
        collectives=tuple(
            replace(x, **{name: share * getattr(x, name) for name in calls})
            for x in unit.collectives
        ),
    )


def combinations_of(
    m: Machine, c: Columns, columns: dict[str, Array]
) -> tuple[dict[str, Array], Callable[[Array], Array]]:
    """(plain columns of their distinct combinations, function that spreads values per combination
    to rows): expensive functions run once per combination, unless every row has different machine
    numbers."""
    if is_factored(c):
        return distinct_combinations(columns)
    if any(np.ndim(getattr(m, name)) for name in m.names()):
        return columns, functools.partial(_spread, back=None, rows=len(c))
    combinations, back = unique_rows(columns)
    return combinations, functools.partial(_spread, back=back, rows=len(c))


def _spread(leaf: Array, back: Array | None, rows: int) -> Array:
    """Values per distinct combination to values per row."""
    shape = getattr(leaf, "shape", ())  # np.shape takes five times as long
    if back is None or not shape or shape[0] == 1 != len(back):
        return leaf + np.zeros(rows)
    return leaf[back]


@dataclass(frozen=True)
class LayerTime:
    """Seconds of one layer and micro-batch of every row, with communication, launches and
    recompute."""

    forward: Array
    backward: Array
    recompute: Array  # part of backward
    contention: Ledger  # part of backward: kernels that share the chip with collectives, of each
    repeated: Array  # share of layers that are computed twice
    exchanged: Array  # the same for the exchange of experts, which can be repeated by itself
    repeated_flop: Array


def layer_times(plan: Plan, m: Machine, c: Columns, cost: ModelCost) -> tuple[LayerTime, ...]:
    """One layer of every kind. Recompute repeats forward work inside backward, its collectives
    included (Korthikanti et al. 2022, section 5)."""
    sharing = dispatch.slowdown(plan, m, c.ep, tensor_of(plan, c.tp))
    # what shares the chip with compute: user buffers of tensor parallelism, and dispatch
    shares = {"tensor_parallel": m.slowdown, "expert_parallel": sharing}
    repeated, selective = repeated_share(plan, c), c.is_recompute("selective")
    exchanged = repeated + c.repeats_module("moe")

    def layer_time(unit: LayerCost, share: float) -> LayerTime:
        contention = merge(
            *(
                {x.component: slows * x.hidden_backward * x.seconds}
                for x in unit.collectives
                if (slows := shares.get(x.component)) is not None
            )
        )
        forward = (
            total(unit.forward) + sum(x.forward_s for x in unit.collectives) + unit.launch_forward
        )
        backward = (
            total(unit.backward)
            + sum(x.backward_s for x in unit.collectives)
            + unit.launch_backward
            + total(contention)
        )
        scores = plan.selective == "attention"
        selected = unit.attention_core if scores else unit.repeated_per_operator
        early, kept = plan.stack.recompute_stops_early, again.spared(c, unit.pieces)
        whole = unit.repeat if early else forward
        if np.any(c.is_recompute("keep")):  # the CPU issues what it did
            law = functools.partial(rowwise, launch_law(plan))
            fewer = law(unit.repeat_busy - kept, unit.repeat_operators, m.operator_launch)
            whole = np.where(c.is_recompute("keep"), fewer, whole)
        alone = np.where(selective, selected, 0.0) + again.repeated_alone(c, unit.pieces)
        spent = share * recompute.repeated_s(repeated, whole, alone)
        flop = share * (
            repeated * (unit.forward_flop - again.spared(c, unit.pieces_flop))
            + np.where(selective, unit.core_flop, 0.0) * (plan.selective != "products")
            + again.repeated_alone(c, unit.pieces_flop)
        )
        return LayerTime(forward, backward + spent, spent, contention, repeated, exchanged, flop)

    return tuple(map(layer_time, cost.kinds, backward_shares(plan)))


def mean_of(plan: Plan, each: Sequence[Array]) -> Array:
    """Mean over layers of a value per kind."""
    shares = timed_shares(plan.model)
    return functools.reduce(np.add, (n * x for n, x in zip(shares, each, strict=True)))


def mean_time(plan: Plan, times: Sequence[LayerTime]) -> LayerTime:
    """The mean layer."""
    first = times[0]
    if len(times) == 1:
        return first
    return replace(
        first,
        forward=mean_of(plan, [x.forward for x in times]),
        backward=mean_of(plan, [x.backward for x in times]),
        recompute=mean_of(plan, [x.recompute for x in times]),
        contention={
            name: mean_of(plan, [x.contention.get(name, 0.0) for x in times])
            for name in merge(*(x.contention for x in times))
        },
        repeated_flop=mean_of(plan, [x.repeated_flop for x in times]),
    )


def mean_collectives(plan: Plan, cost: ModelCost) -> tuple[Collective, ...]:
    """Collectives of the mean layer, by kind."""
    if len(cost.kinds) == 1:
        return cost.kinds[0].collectives
    shares = zip(timed_shares(plan.model), cost.kinds, strict=True)
    return tuple(each_of(x, share) for share, unit in shares for x in unit.collectives)


def layer_work(unit: LayerCost, time: LayerTime, extras: tuple[Array, Array]) -> Work:
    """Forward, input and weight gradient of a layer; what communication adds to backward is waited
    for.

    extras: seconds that sharding and offloading add to forward and to backward.
    """
    gemms = total(
        {name: leaf for name, leaf in unit.backward.items() if name.startswith("matmul/")}
    )
    # the CPU issues one gradient as often as the other
    weight = pipeline.weight_gradient_s(gemms + unit.launch_backward)
    if ADAPTER_GEMMS in unit.backward:  # beside frozen weights: theirs are next to nothing
        weight = 0.0 * weight
    return Work(time.forward + extras[0], time.backward + extras[1] - weight, weight)


def end_work(end: Ledger) -> Work:
    """Work of embedding, head and loss, or of a module of multi-token prediction: GEMM time split
    1/3 forward, 1/3 dgrad, 1/3 wgrad; memory-bound time split evenly."""
    gemms = total({name: leaf for name, leaf in end.items() if name.startswith("matmul/")})
    gemm, rest = gemms / 3, (total(end) - gemms) / 2
    return Work(gemm + rest, gemm + rest, gemm)
