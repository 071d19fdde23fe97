"""Work of layers and ranks for one micro-batch, with the communication of sharding and
offloading."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.estimate import host_link, sync
from planner.estimate import pipeline as pipelines
from planner.estimate.layer import ModelCost
from planner.estimate.layer.rows import (
    LayerTime,
    cost_of_rows,
    end_work,
    layer_times,
    layer_work,
    mean_collectives,
    mean_of,
    mean_time,
)
from planner.estimate.machine import Machine, machine
from planner.estimate.memory import offload
from planner.estimate.trained import Weights, weights_of
from planner.formulas import overlap, pipeline
from planner.ledger import Array, section
from planner.schedules.base import Work
from planner.specs.columns import Columns
from planner.specs.layout import RECOMPUTE_KINDS
from planner.specs.plan import Plan


@dataclass(frozen=True)
class Layers:
    """Layers of every row for one micro-batch, and what sharding and offloading add to the mean
    layer."""

    cost: ModelCost
    times: tuple[LayerTime, ...]
    mean: LayerTime
    weights: Weights  # of a rank
    who: sync.Replicas  # ranks that hold the same ones
    sharded: sync.ShardedLayer
    sharding: tuple[Array, Array]  # seconds forward and backward
    copied: offload.Copies | None  # None where no row offloads activations

    @property
    def added(self) -> tuple[Array, Array]:
        """Seconds that are added forward and backward."""
        if self.copied is None:
            return self.sharding
        return self.sharding[0] + self.copied.forward, self.sharding[1] + self.copied.backward


@dataclass(frozen=True)
class LayerSeconds:
    """Seconds of one mean layer and micro-batch on one rank, one value per row."""

    forward: Array  # with its collectives and what sharding adds
    backward: Array  # the same, without recompute
    again: Array  # what recomputing the whole layer adds to backward
    shared: tuple[Array, Array]  # what collectives take of the link to host memory, each way


def layers_of(plan: Plan, m: Machine, c: Columns) -> Layers:
    """Layers of the plan on this machine."""
    cost = cost_of_rows(plan, m, c)
    with section("recompute"):
        times = layer_times(plan, m, c, cost)
    mean = mean_time(plan, times)
    weights, who = weights_of(plan, c), sync.replicas(plan, c)
    with section("sharded data parallelism, one layer"):
        sharded = sync.sharded_layer(plan, m, c, weights, who)
        added = _sharding_s(plan, m, c, mean, sharded)
    copied = None
    if np.any(c.offloads("activations")):
        with section("offloaded activations, one layer"):
            whole = mean.forward + added[0], mean.backward + added[1]
            shared = host_link.busy_s(plan, m, mean_collectives(plan, cost), sharded, who)
            copied = offload.copies(plan, m, c, weights.every, whole, shared)
    return Layers(cost, times, mean, weights, who, sharded, added, copied)


def _sharding_s(
    plan: Plan, m: Machine, c: Columns, layer: LayerTime, sharded: sync.ShardedLayer
) -> tuple[Array, Array]:
    """Exposed time of gathers and reductions of a layer's shards, forward and backward, as a mean
    over micro-batches where only the last one reduces."""
    forward, backward = _exposed_s(plan, m, layer, sharded)
    if plan.sync_waits or plan.stack.pipelining == "torch":
        kept = replace(
            sharded, backward=sharded.backward - _reduced_s(sharded), scatter=0.0 * sharded.scatter
        )
        share = sync.reductions(plan, c)
        alone = _exposed_s(plan, m, layer, kept)[1]
        backward = alone + share * (backward - alone)
    return forward + sharded.streamed, backward + sharded.streamed


def _reduced_s(sharded: sync.ShardedLayer) -> Array:
    """Seconds of backward's collectives that reduce gradients."""
    return np.minimum(sharded.scatter, sharded.backward)


def _exposed_s(
    plan: Plan, m: Machine, layer: LayerTime, sharded: sync.ShardedLayer
) -> tuple[Array, Array]:
    """Exposed time in a micro-batch that reduces, before shards from host memory are added."""
    if plan.training.overlap is False or not plan.stack.overlap.prefetch:
        return sharded.forward, sharded.backward
    first, again, reduced = (sync.beside(plan, part) for part in ("forward", "backward", "reduce"))
    scattered = _reduced_s(sharded)
    ahead = sharded.forward * first
    behind = (sharded.backward - scattered) * again + scattered * reduced
    return (
        overlap.prefetched_exposed_s(layer.forward, ahead, m.slowdown) + (sharded.forward - ahead),
        overlap.prefetched_exposed_s(layer.backward, behind, m.slowdown)
        + (sharded.backward - behind),
    )


def ranks_of(plan: Plan, c: Columns, layers: Layers) -> pipelines.Stages:
    """Compute of the pipeline ranks for one micro-batch."""
    works = [
        layer_work(*kind, layers.added)
        for kind in zip(layers.cost.kinds, layers.times, strict=True)
    ]
    average = Work(*(mean_of(plan, each) for each in zip(*works, strict=True)))
    ends = end_work(layers.cost.head), end_work(layers.cost.module)
    return pipelines.stages(plan, c, pipelines.Pieces(tuple(works), average, *ends))


def forward_s(plan: Plan, m: Machine, c: Columns) -> Array:
    """Seconds of a forward-only pass over the batch of a step."""
    none = 0.0 * c.recompute
    c = replace(c, recompute=none, recompute_size=none, offload=none)
    stage = ranks_of(plan, c, layers_of(plan, m, c)).slowest().forward
    microbatches = c.microbatches(plan.training.global_batch)
    return pipeline.forward_only_s(stage, microbatches, c.pp)


def layer_seconds(plan: Plan, c: Columns) -> LayerSeconds:
    """Seconds of a layer of every row, by the formulas of `step_time`, and the extra seconds of
    recomputing its forward pass.

    The time of a layer is without recompute, even if the row has it.
    """
    m = machine(plan)
    full = float(RECOMPUTE_KINDS.index("full"))
    whole = replace(c, recompute=np.full(len(c), full), recompute_size=np.zeros(len(c)))
    cost, who = cost_of_rows(plan, m, whole), sync.replicas(plan, whole)
    layer = mean_time(plan, layer_times(plan, m, whole, cost))
    once = replace(layer, backward=layer.backward - layer.recompute)
    sharded = sync.sharded_layer(plan, m, whole, weights_of(plan, whole), who)
    added = _sharding_s(plan, m, whole, once, sharded)
    shared = host_link.busy_s(plan, m, mean_collectives(plan, cost), sharded, who)
    return LayerSeconds(once.forward + added[0], once.backward + added[1], layer.recompute, shared)
