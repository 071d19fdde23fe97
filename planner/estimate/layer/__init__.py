"""Cost of one transformer layer and of the LM head for one micro-batch.

It depends on few columns of a layout (tensor, context and expert parallel, micro-batch, sequence
parallel), so it is evaluated on their distinct combinations only and gathered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.estimate.layer.attention import core_s
from planner.estimate.layer.collectives import (
    Collective,
    contrast_collectives,
    each_of,
    end_collectives,
    layer_collectives,
    tensor_blocks,
)
from planner.estimate.layer.head import head_s
from planner.estimate.layer.launches import TAIL_OPERATORS, issued_operators
from planner.estimate.layer.matmul import weight_gemms, weight_gemms_s
from planner.estimate.layer.operators import memory_bound_s, weight_traffic_s
from planner.estimate.layer.shape import BothWays, LayerShape, local_shape, padded_vocab
from planner.estimate.machine import Machine
from planner.formulas import kernels
from planner.ledger import Array, Ledger, section, total, under
from planner.specs.towers import head_plan

__all__ = ["Collective", "LayerCost", "layer_cost", "local_shape", "padded_vocab"]

# torchtitan's per-operator rule keeps attention and every second GEMM, and repeats all else
# (torchtitan/distributed/activation_checkpoint.py)
_REPEATED_GEMMS = 0.5
_LAST_GEMMS = ("mlp_out", "expert_out", "shared_out")  # backward does not need their result


@dataclass(frozen=True)
class LayerCost:
    """Seconds of one layer (mean of dense and expert layers) and of the head; leaves sum to the
    GPU's busy time."""

    forward: Ledger
    backward: Ledger
    attention_core: Array  # forward of scores, softmax and weighted values
    # forward up to the last activation that backward needs: without the MLP's second GEMM and the
    # residual add
    repeat: Array
    repeated_per_operator: Array  # forward of what torchtitan's per-operator rule recomputes
    launch_forward: Array  # excess of the CPU over the GPU
    launch_backward: Array
    collectives: tuple[Collective, ...]
    head: Ledger
    ends: tuple[Collective, ...]  # of embedding, head and loss, whose seconds are in `head`
    forward_flop: Array  # per layer and micro-batch, by flops.CONVENTION
    core_flop: Array


@dataclass(frozen=True)
class _Compute:
    """GPU time of a layer without communication."""

    seconds: BothWays[Ledger]
    core: BothWays[Array]
    repeated_per_operator: Array
    forward_flop: Array


def layer_cost(shape: LayerShape, m: Machine) -> LayerCost:
    """Evaluate one layer on a machine, one value per combination of the shape's columns; where the
    model has towers, the mean over their layers."""
    found = [(_one_tower(own, m), share) for own, share in shape.towers()]
    return found[0][0] if len(found) == 1 else _mean(shape, m, found)


def _mean(shape: LayerShape, m: Machine, found: list[tuple[LayerCost, float]]) -> LayerCost:
    """A mean layer of several towers, and the head of the one that has it."""

    def leaves(ledgers: list[tuple[Ledger, float]]) -> Ledger:
        out: Ledger = {}
        for ledger, share in ledgers:
            for name, leaf in ledger.items():
                out[name] = out.get(name, 0.0) + share * leaf
        return out

    def mean(of: Callable[[LayerCost], Array]) -> Array:
        return sum(share * of(one) for one, share in found)

    collectives = (each_of(x, share) for one, share in found for x in one.collectives)
    head = shape.of_plan(head_plan(shape.plan))
    return LayerCost(
        forward=leaves([(one.forward, share) for one, share in found]),
        backward=leaves([(one.backward, share) for one, share in found]),
        attention_core=mean(lambda one: one.attention_core),
        repeat=mean(lambda one: one.repeat),
        repeated_per_operator=mean(lambda one: one.repeated_per_operator),
        launch_forward=mean(lambda one: one.launch_forward),
        launch_backward=mean(lambda one: one.launch_backward),
        collectives=tuple(collectives),
        forward_flop=mean(lambda one: one.forward_flop),
        core_flop=mean(lambda one: one.core_flop),
        **_ends(head, m),
    )


def _ends(shape: LayerShape, m: Machine) -> dict[str, Any]:
    """Embedding, head and loss."""
    with section("language-model head"):
        head = head_s(shape, m)
        ends = end_collectives(shape, m) if shape.plan.model.vocab else ()
        gathered = contrast_collectives(shape, m)
    if gathered:
        head["data_parallel/contrast"] = sum(x.forward_s + x.backward_s for x in gathered)
    if ends and np.any(shape.tp > 1):
        head["tensor_parallel/ends"] = sum(x.forward_s + x.backward_s for x in ends)
        head["launch/ends"] = 2.0 * np.where(shape.tp > 1, m.tensor_idle, 0.0)
    return {"head": head, "ends": (*ends, *gathered)}


def _one_tower(shape: LayerShape, m: Machine) -> LayerCost:
    with section("one layer, one micro-batch"):
        done = _compute(shape, m)
        computing = BothWays(total(done.seconds.forward), total(done.seconds.backward))
        found = layer_collectives(shape, m, done.core, computing, _shared(done.seconds))
    ends = _ends(shape, m)
    shared_idle = np.where(shape.tp > 1, m.tensor_idle, 0.0)
    idle = BothWays(m.layer_idle + shared_idle, shared_idle)
    busy_forward = computing.forward + sum(x.forward_s for x in found) + idle.forward
    busy_backward = computing.backward + sum(x.backward_s for x in found) + idle.backward
    issued = issued_operators(shape, m, found)
    tail = _tail_s(shape, done.seconds.forward, found)

    blocking = shape.plan.cluster.gpu.architecture in shape.plan.stack.launch.blocking
    law = kernels.blocked_launch_s if blocking else kernels.launch_bound_s

    def with_launches(busy_s: Array, operators: Array) -> Array:
        return law(busy_s, operators, m.operator_launch)

    return LayerCost(
        forward=done.seconds.forward,
        backward=done.seconds.backward,
        attention_core=done.core.forward,
        repeat=with_launches(busy_forward - tail, issued.forward - TAIL_OPERATORS),
        repeated_per_operator=done.repeated_per_operator,
        launch_forward=with_launches(busy_forward, issued.forward) - busy_forward + idle.forward,
        launch_backward=with_launches(busy_backward, issued.backward)
        - busy_backward
        + idle.backward,
        collectives=found,
        forward_flop=done.forward_flop,
        core_flop=shape.core_flop,
        **ends,
    )


def _shared(seconds: BothWays[Ledger]) -> BothWays[Array]:
    """GEMMs of shared experts."""
    names = [f"matmul/{name}" for name in ("shared_in", "shared_out")]

    def of(ledger: Ledger) -> Array:
        return sum((ledger[name] for name in names if name in ledger), start=np.zeros(1))

    return BothWays(of(seconds.forward), of(seconds.backward))


def _compute(shape: LayerShape, m: Machine) -> _Compute:
    forward: Ledger = {}
    backward: Ledger = {}
    gemms: Array = 0.0
    flop = shape.core_flop
    for p in weight_gemms(shape):
        with section(p.name):
            each = weight_gemms_s(shape.plan, m, p)
        name = f"matmul/{p.name}"  # parts of one type, differently shaped, share it
        forward[name] = forward.get(name, 0.0) + p.per_layer * each.forward
        backward[name] = backward.get(name, 0.0) + p.per_layer * each.backward
        gemms = gemms + p.per_layer * each.forward
        flop = flop + p.per_layer * 2 * p.m * p.n * p.k * p.batch
    core = core_s(shape, m)
    light = memory_bound_s(shape, m)
    forward |= {"attention/core": core.forward, **under("memory_bound", light.forward)}
    backward |= {"attention/core": core.backward, **under("memory_bound", light.backward)}
    backward["memory_bound/weights"] = weight_traffic_s(m, weight_gemms(shape))
    repeated = _REPEATED_GEMMS * gemms + sum(light.forward.values())
    return _Compute(BothWays(forward, backward), core, repeated, flop)


def _tail_s(shape: LayerShape, forward: Ledger, found: tuple[Collective, ...]) -> Array:
    """Forward time after the last saved activation, which early-stop recompute skips, its
    tensor-parallel collective included."""
    gemms = [forward.get(f"matmul/{name}", 0.0) for name in _LAST_GEMMS]
    reduced = sum(
        x.forward_s
        for x in found
        if x.component == "tensor_parallel" and x.operation != "all_gather"
    )
    adds = forward["memory_bound/residual"] / 2
    return sum(gemms, start=np.zeros(1)) + adds + reduced / tensor_blocks(shape.plan)
