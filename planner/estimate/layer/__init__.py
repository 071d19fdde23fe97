"""Cost of one layer of every kind and of the LM head for one micro-batch.

It depends on few columns of a layout (tensor, context and expert parallel, micro-batch, sequence
parallel), so it is evaluated on their distinct combinations only and gathered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.estimate.communicate import Collective
from planner.estimate.layer.adapters import adapter_work, dequantised_s, returned_s, shared_matrices
from planner.estimate.layer.again import pieces, pieces_flop
from planner.estimate.layer.attention import core_s
from planner.estimate.layer.collectives import (
    contrast_collectives,
    end_collectives,
    layer_collectives,
    module_collectives,
)
from planner.estimate.layer.head import head_s, module_s
from planner.estimate.layer.launches import TAIL_OPERATORS, issued_operators
from planner.estimate.layer.matmul import casts_s, weight_gemms, weight_gemms_s
from planner.estimate.layer.operators import memory_bound_s, residual_adds, weight_traffic_s
from planner.estimate.layer.shape import (
    BothWays,
    LayerShape,
    head_columns,
    local_shape,
    padded_vocab,
)
from planner.estimate.machine import Machine
from planner.formulas import kernels
from planner.ledger import Array, Ledger, section, total, under
from planner.specs.layers import mix_of_kind, timed_kinds
from planner.specs.plan import Plan
from planner.specs.towers import head_plan, kind_plan

__all__ = [
    "ADAPTER_GEMMS",
    "LayerCost",
    "ModelCost",
    "head_columns",
    "local_shape",
    "model_cost",
    "padded_vocab",
]

# torchtitan's per-operator rule keeps attention and every second GEMM, and repeats all else
# (torchtitan/distributed/activation_checkpoint.py)
_REPEATED_GEMMS = 0.5
_LAST_GEMMS = ("mlp_out", "expert_out", "shared_out")  # backward does not need their result
ADAPTER_GEMMS = "matmul/adapters"
_LEAST_S = 1e-30  # avoids a division by a wait of zero


@dataclass(frozen=True)
class LayerCost:
    """Seconds of one layer; leaves sum to the GPU's busy time."""

    forward: Ledger
    backward: Ledger
    attention_core: Array  # forward of scores, softmax and weighted values
    # forward as recompute repeats it: where it stops early up to the last activation that backward
    # needs, without the MLP's second GEMM and the residual add
    repeat: Array
    repeat_busy: Array  # of that the GPU's part, and the operators that the CPU issues
    repeat_operators: Array
    repeated_per_operator: Array  # forward of what torchtitan's per-operator rule recomputes
    pieces: Ledger  # forward of what recompute repeats or keeps by itself, see `again`
    pieces_flop: Ledger
    launch_forward: Array  # excess of the CPU over the GPU
    launch_backward: Array
    collectives: tuple[Collective, ...]
    forward_flop: Array  # per layer and micro-batch, by flops.CONVENTION
    core_flop: Array


@dataclass(frozen=True)
class ModelCost:
    """Seconds of one layer of every kind (specs.layers.timed_kinds) and of the head."""

    kinds: tuple[LayerCost, ...]
    head: Ledger
    module: Ledger  # of multi-token prediction, its layer and its head apart
    ends: tuple[Collective, ...]  # of embedding, head and loss, whose seconds are in `head`
    module_ends: tuple[Collective, ...]  # of the modules of multi-token prediction


@dataclass(frozen=True)
class _Compute:
    """GPU time of a layer without communication."""

    seconds: BothWays[Ledger]
    core: BothWays[Array]
    repeated_per_operator: Array
    flop: Ledger  # forward, of every GEMM


@dataclass(frozen=True)
class _Layer:
    """A layer before the CPU issues it."""

    shape: LayerShape
    done: _Compute
    collectives: tuple[Collective, ...]
    idle: BothWays[Array]  # of the device between operators
    busy: BothWays[Array]
    issued: BothWays[Array]  # operators
    tail: Array  # forward after the last saved activation


def model_cost(plan: Plan, m: Machine, **columns: Array) -> ModelCost:
    """Evaluate a plan on a machine, one value per combination of the columns of shape.KEY."""
    mean, timed = local_shape(plan, **columns), timed_kinds(plan.model)
    kinds = layer_costs(
        [
            replace(mean.of_plan(plan_of_kind), mix=mix_of_kind(kind, count))
            for count, (plan_of_kind, kind) in zip(
                timed.counts, (kind_plan(plan, kind) for kind in timed.kinds), strict=True
            )
        ],
        m,
    )
    mean = mean.of_plan(head_plan(plan))
    with section("language-model head"):
        head, module = head_s(mean, m), module_s(mean, m)
        ends = end_collectives(mean, m) if mean.plan.model.vocab else ()
        gathered, module_ends = contrast_collectives(mean, m), module_collectives(mean, m)
    if gathered:
        head["data_parallel/contrast"] = sum(x.forward_s + x.backward_s for x in gathered)
    if ends and np.any(mean.tp > 1):
        head["tensor_parallel/ends"] = sum(x.forward_s + x.backward_s for x in ends)
        head["launch/ends"] = 2.0 * np.where(mean.tp > 1, m.tensor_idle, 0.0)
    if module and np.any(mean.tp > 1):
        module["tensor_parallel/module"] = sum(x.forward_s + x.backward_s for x in module_ends)
    return ModelCost(kinds, head, module, (*ends, *gathered), module_ends)


def layer_costs(shapes: Sequence[LayerShape], m: Machine) -> tuple[LayerCost, ...]:
    """One layer of every shape, the layers of one model: the CPU issues all of them ahead."""
    layers = []
    for shape in shapes:
        kind = "" if len(shapes) == 1 else f" of {shape.mix.name}"
        with section(f"one layer{kind}, one micro-batch"):
            layers.append(_layer(shape, m))
    plan = shapes[0].plan
    law = launch_law(plan)
    counts = [float(shape.mix.layers) for shape in shapes]

    def issued(busy: Sequence[Array], operators: Sequence[Array]) -> list[Array]:
        return _issued_s(lambda b, n: law(b, n, m.operator_launch), counts, busy, operators)

    forward = issued([x.busy.forward for x in layers], [x.issued.forward for x in layers])
    backward = issued([x.busy.backward for x in layers], [x.issued.backward for x in layers])
    again = issued(
        [x.busy.forward - x.tail for x in layers],
        [x.issued.forward - TAIL_OPERATORS for x in layers],
    )
    return tuple(map(functools.partial(_cost, m), layers, forward, backward, again))


def _issued_s(
    law: Callable[[Array, Array], Array],
    counts: Sequence[float],
    busy: Sequence[Array],
    operators: Sequence[Array],
) -> list[Array]:
    """Seconds of a layer of every kind as the CPU issues it. The CPU runs ahead over layers, so
    that kinds with long GPU time hide the launches of others: the wait of all layers is split in
    proportion to what each kind would wait by itself."""
    alone = [law(b, n) for b, n in zip(busy, operators, strict=True)]
    if len(alone) == 1:
        return alone

    def together(each: Sequence[Array]) -> Array:
        return functools.reduce(np.add, (n * x for n, x in zip(counts, each, strict=True)))

    work = together(busy)
    waits = [a - b for a, b in zip(alone, busy, strict=True)]
    frac = (law(work, together(operators)) - work) / np.maximum(together(waits), _LEAST_S)
    return [b + np.clip(frac, 0.0, 1.0) * x for b, x in zip(busy, waits, strict=True)]


def _layer(shape: LayerShape, m: Machine) -> _Layer:
    done = _compute(shape, m)
    computing = BothWays(total(done.seconds.forward), total(done.seconds.backward))
    collectives = layer_collectives(shape, m, done.core, computing, _shared(done.seconds))
    shared_idle = np.where(shape.tp > 1, m.tensor_idle, 0.0)
    own_idle = m.layer_idle + shared_matrices(shape) * m.adapter_idle
    idle = BothWays(own_idle + shared_idle, shared_idle)
    busy = BothWays(
        computing.forward + sum(x.forward_s for x in collectives) + idle.forward,
        computing.backward + sum(x.backward_s for x in collectives) + idle.backward,
    )
    tail = _tail_s(shape, done.seconds.forward, collectives)
    return _Layer(
        shape, done, collectives, idle, busy, issued_operators(shape, m, collectives), tail
    )


def _cost(m: Machine, layer: _Layer, forward: Array, backward: Array, again: Array) -> LayerCost:
    """forward, backward, again: seconds as the CPU issues them."""
    issue = launch_law(layer.shape.plan)

    def law(busy: Array, operators: Array) -> Array:
        return issue(busy, operators, m.operator_launch)

    return LayerCost(
        forward=layer.done.seconds.forward,
        backward=layer.done.seconds.backward,
        attention_core=layer.done.core.forward,
        repeat=again,
        repeat_busy=layer.busy.forward - layer.tail,
        repeat_operators=layer.issued.forward - TAIL_OPERATORS,
        repeated_per_operator=layer.done.repeated_per_operator,
        pieces=pieces(layer.shape, m, layer.done.seconds.forward, layer.collectives, law),
        pieces_flop=pieces_flop(layer.shape.mix, layer.done.flop, layer.shape.core_flop),
        launch_forward=forward - layer.busy.forward + layer.idle.forward,
        launch_backward=backward - layer.busy.backward + layer.idle.backward,
        collectives=layer.collectives,
        forward_flop=total(layer.done.flop) + layer.shape.core_flop,
        core_flop=layer.shape.core_flop,
    )


def launch_law(plan: Plan) -> Callable[..., Array]:
    """How GPU and CPU share a stretch of work: (GPU seconds, operators, seconds of each)."""
    blocking = plan.cluster.gpu.architecture in plan.stack.launch.blocking
    return kernels.blocked_launch_s if blocking else kernels.launch_bound_s


def _shared(seconds: BothWays[Ledger]) -> BothWays[Array]:
    """GEMMs of shared experts."""
    names = [f"matmul/{name}" for name in ("shared_in", "shared_out")]

    def shared(ledger: Ledger) -> Array:
        return sum((ledger[name] for name in names if name in ledger), start=np.zeros(1))

    return BothWays(shared(seconds.forward), shared(seconds.backward))


def _compute(shape: LayerShape, m: Machine) -> _Compute:
    forward: Ledger = {}
    backward: Ledger = {}
    gemms: Array = 0.0
    cast = BothWays[Array](0.0, 0.0)
    flop: Ledger = {}
    products = tuple(weight_gemms(shape))
    for p in products:
        with section(p.name):
            each = weight_gemms_s(shape.plan, m, p)
        name = f"matmul/{p.name}"  # parts of one type, differently shaped, share it
        forward[name] = forward.get(name, 0.0) + p.per_layer * each.forward
        backward[name] = backward.get(name, 0.0) + p.per_layer * each.backward
        gemms = gemms + p.per_layer * each.forward
        narrow = casts_s(shape.plan, m, p)
        cast = BothWays(
            cast.forward + p.per_layer * narrow.forward,
            cast.backward + p.per_layer * narrow.backward,
        )
        flop[name] = flop.get(name, 0.0) + p.per_layer * 2 * p.m * p.n * p.k * p.batch
    adapters = adapter_work(shape, m)
    if adapters is not None:
        forward[ADAPTER_GEMMS] = adapters.gemms.forward
        backward[ADAPTER_GEMMS] = adapters.gemms.backward
        flop[ADAPTER_GEMMS] = adapters.flop
    core = core_s(shape, m)
    light = memory_bound_s(shape, m)
    forward |= {"attention/core": core.forward, **under("memory_bound", light.forward)}
    backward |= {"attention/core": core.backward, **under("memory_bound", light.backward)}
    if shape.plan.recipe is not None:
        forward["memory_bound/casts"], backward["memory_bound/casts"] = cast.forward, cast.backward
    backward["memory_bound/weights"] = weight_traffic_s(m, products)
    if adapters is not None:  # nothing accumulates of what is frozen
        backward["memory_bound/weights"] = 0.0 * shape.tokens
        forward["memory_bound/adapters"] = adapters.operators.forward
        backward["memory_bound/adapters"] = adapters.operators.backward
    returned = returned_s(shape, m)
    if returned is not None:
        forward["memory_bound/returned"] = backward["memory_bound/returned"] = returned
    dequantised = dequantised_s(shape, m)
    if dequantised is not None:
        forward["memory_bound/dequantised"] = dequantised.forward
        backward["memory_bound/dequantised"] = dequantised.backward
    again = 0.0 if shape.plan.selective == "products" else _REPEATED_GEMMS
    repeated = again * (gemms + cast.forward) + sum(light.forward.values())
    return _Compute(BothWays(forward, backward), core, repeated, flop)


def _tail_s(shape: LayerShape, forward: Ledger, collectives: tuple[Collective, ...]) -> Array:
    """Forward time after the last saved activation, which early-stop recompute skips, its
    tensor-parallel collective included."""
    gemms = [forward.get(f"matmul/{name}", 0.0) for name in _LAST_GEMMS]
    reduced = sum(
        x.forward_s
        for x in collectives
        if x.component == "tensor_parallel" and x.operation != "all_gather"
    )
    adds = forward["memory_bound/residual"] / max(residual_adds(shape.mix), 1.0)
    return sum(gemms, start=np.zeros(1)) + adds + reduced / (shape.mix.sums or 1.0)
