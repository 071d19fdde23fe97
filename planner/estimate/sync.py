"""Data-parallel communication of a layout: replica and shard groups, gathers and reductions of
sharded layers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from planner.estimate import communicate, mechanisms, quantised
from planner.estimate.communicate import Group, Traffic, place, place_twice, share_of
from planner.estimate.gradients import Buckets, buckets_of, first_bytes
from planner.estimate.machine import Machine
from planner.estimate.trained import Weights, trained_count, trained_share
from planner.formulas import data_parallel
from planner.formulas import experts as sharing
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.layout import OFFLOADED_PARAMS
from planner.specs.mechanism import Codes, Shard, Sharded
from planner.specs.names import SyncPart
from planner.specs.plan import Plan

# parts in which a stack without buckets of its own reduces: about a bucket of torch's DDP
LAST_BYTES = 25e6
_ZERO_2 = 2  # the first stage whose gradients are reduced layer by layer
_WIRE_BYTES = {"fp32": 4.0, "bf16": 2.0}


@dataclass(frozen=True)
class Replicas:
    """Communication groups of data parallelism."""

    group: Group  # all ranks with the same tensor and pipeline coordinates: dp * cp
    shards: Group  # the ranks over which ZeRO shards
    mirrors: Group  # ranks with the same shard (hybrid sharding)
    experts: Group  # ranks with the same experts
    several: Array  # whether there is more than one replica


def replicas(plan: Plan, c: Columns) -> Replicas:
    """Groups of the data-parallel dimension, placed on nodes in the order tp, cp, dp, pp, or tp,
    cp, pp, dp."""
    tiers, tp, cp = plan.cluster.tiers, c.tp, c.cp
    ranks = c.replicas
    shard = np.where(c.zero >= 1, c.shards, ranks)
    mirrors = np.maximum(ranks / shard, 1.0)
    usual = Replicas(
        group=place(ranks, tp, tiers),
        shards=place(shard, tp, tiers),
        mirrors=place(mirrors, tp * shard, tiers),
        experts=place(sharing.replicas(plan, c), c.ep * sharing.tensor_of(plan, tp), tiers),
        several=ranks > 1,
    )
    if not np.any(apart := c.is_placement("tp-cp-pp-dp")):
        return usual
    # the stages of a pipeline lie between replicas; experts are not shared out in this order
    # (rules)
    stride = tp * cp * c.pp
    group = place_twice(cp, tp, c.dp, stride, tiers)
    within = np.minimum(cp, shard)
    shards = place_twice(within, tp, shard / within, stride, tiers)
    far = place(mirrors, np.where(shard >= cp, stride * shard / cp, tp * shard), tiers)

    def either(beside: Group, spread: Group) -> Group:
        island = None
        if beside.ranks_per_island is not None and spread.ranks_per_island is not None:
            island = np.where(apart, spread.ranks_per_island, beside.ranks_per_island)
        node = np.where(apart, spread.ranks_per_node, beside.ranks_per_node)
        return Group(beside.ranks, node, island)

    return Replicas(
        either(usual.group, group),
        either(usual.shards, shards),
        either(usual.mirrors, far),
        either(usual.experts, group),
        usual.several,
    )


@dataclass(frozen=True)
class ShardedLayer:
    """Communication of one layer and micro-batch under ZeRO-2 and ZeRO-3."""

    gather: Array  # one all-gather of the layer's parameters
    again: Array  # the all-gather before backward, from copies near by if there are any
    scatter: (
        Array  # reduce-scatter of its gradients, and all-reduce over mirrors under hybrid sharding
    )
    forward: Array  # what a forward pass must wait for or hide
    backward: Array
    streamed: Array  # what either waits for: the shard from host memory, where nothing hides it
    weight_bytes: Array
    gradient_bytes: Array
    near: bool  # whether backward gathers from a second copy


def compute_bytes(plan: Plan) -> float:
    """Bytes of a parameter as kernels read it."""
    return _WIRE_BYTES["bf16" if plan.training.mixed_precision else "fp32"]


def gathered_bytes(plan: Plan) -> float:
    """Bytes of a layer's parameter on its way to the ranks that gather it."""
    usual, recipe = compute_bytes(plan), plan.recipe
    if recipe is None or not plan.is_low("weights"):
        return usual
    wide = plan.training.wide_layers / plan.model.layers
    return (1 - wide) * recipe.gathered + wide * usual


def beside(plan: Plan, part: SyncPart) -> bool:
    """Whether a part of the communication between replicas may run beside compute, where the stack
    lets it."""
    allowed = plan.training.data_overlap
    return allowed is None or part in allowed


def shard_bytes(plan: Plan) -> float:
    """Bytes of a parameter on its way to the ranks that gather it under ZeRO-3."""
    codes = plan.stated(lambda each: each.coded("weights"))
    return gathered_bytes(plan) if codes is None else codes.bytes


def wire_bytes(plan: Plan) -> float:
    """Bytes of a gradient element while it is reduced."""
    if not plan.training.mixed_precision:
        return _WIRE_BYTES["fp32"]
    training = plan.training
    narrow = "bf16" if training.gradient_precision == "bf16" else training.state_precision
    chosen = training.gradient_reduce or narrow
    return plan.stack.state.gradient_wire if chosen is None else _WIRE_BYTES[chosen]


def bucketing(plan: Plan, cap: float) -> Buckets:
    """Gradient buckets of the trained weights, closed at `cap` bytes; equal buckets where only some
    weights are trained."""
    fusion = plan.stack.fusion
    if plan.partial:
        sent = wire_bytes(plan) * trained_count(plan)
        count = max(math.ceil(sent / cap), 1)
        layers = min(first_bytes(cap) / max(sent, 1.0), 1.0) * plan.model.layers
        return Buckets(count, layers * trained_share(plan), sent / count)
    return buckets_of(plan.model, fusion.joint_qkv, fusion.joint_gate, wire_bytes(plan), cap)


def keeps_whole(plan: Plan, c: Columns) -> Array:
    """Layouts of FSDP that keep whole gradients until the last micro-batch reduces them."""
    microbatches = c.microbatches(plan.training.global_batch)
    waits = (plan.sync_waits & (microbatches > 1)) | stays_gathered(plan, c)
    return plan.stack.state.zero2_gathers & (c.zero >= _ZERO_2) & waits


def stays_gathered(plan: Plan, c: Columns) -> Array:
    """Layouts whose stages FSDP keeps gathered from a backward on, with whole gradients, until the
    schedule ends: backward_maybe_with_nosync of torch/distributed/pipelining/stage.py."""
    return (plan.stack.pipelining == "torch") & (c.pp > 1) & (c.zero >= _ZERO_2)


def reductions(plan: Plan, c: Columns) -> Array:
    """Share of the micro-batches whose gradients are reduced."""
    microbatches = c.microbatches(plan.training.global_batch)
    return np.where(keeps_whole(plan, c), 1.0 / np.maximum(microbatches, 1.0), 1.0)


def sharded_layer(
    plan: Plan, m: Machine, c: Columns, stage: Weights, who: Replicas
) -> ShardedLayer:
    """Parameters are gathered for forward and for backward, gradients reduced, for every
    micro-batch that has both."""
    per_layer, trained = stage.every.per_layer(), trained_share(plan) * stage.trained.per_layer()
    if plan.training.adapter is not None:
        per_layer = per_layer + trained
    each, wide = shard_bytes(plan), gathered_bytes(plan)
    weights = each * per_layer - quantised.saved_per_layer(plan, c, stage.every, each)
    gather = communicate.all_gather_s(m, weights, who.shards, m.network_frac)
    if (codes := plan.stated(lambda each: each.coded("weights"))) is not None:
        gather = gather + _recode_s(m, codes, wide) * per_layer
    again = gather
    near = mechanisms.near(plan, c, lambda: Sharded(per_layer, wide, who.shards.ranks))
    if near is not None:
        neighbours = place(near, c.tp, plan.cluster.tiers)
        again = communicate.all_gather_s(m, wide * per_layer, neighbours)
    streamed: Array = 0.0
    zero3 = c.zero >= 3
    if (shard := _from_host_s(plan, m, c, per_layer / who.shards.ranks)) is not None:
        if plan.stack.overlap.host_shards:
            gather, again = gather + shard, again + shard
        else:
            streamed = np.where(zero3, shard, 0.0)
    gradients, scatter = _scattered(plan, m, trained, who)
    return ShardedLayer(
        gather,
        again,
        scatter,
        np.where(zero3, gather, 0.0),
        np.where(zero3, again + scatter, np.where(c.syncs_per_layer, scatter, 0.0)),
        streamed,
        weights,
        gradients,
        near is not None,
    )


def _from_host_s(plan: Plan, m: Machine, c: Columns, elements: Array) -> Array | None:
    """Seconds in which a rank's shard of a layer comes from host memory; None where no layout
    offloads parameters."""
    offloaded = c.offloads(*OFFLOADED_PARAMS)
    if not np.any(offloaded):
        return None
    each = compute_bytes(plan)
    copied = data_parallel.streamed_state_s(
        elements, host_bytes_per_s=m.host_bandwidth, bytes_per_parameter=each
    )
    shard = mechanisms.brought(plan, c, copied, lambda: Shard(c, m, each * elements))
    return np.where(offloaded, shard, 0.0)


def _scattered(plan: Plan, m: Machine, trained: Array, who: Replicas) -> tuple[Array, Array]:
    """(bytes of a layer's gradients as sent, seconds of their reduce-scatter, and all-reduce over
    mirrors under hybrid sharding). trained: elements of the layer."""
    codes, cap = plan.stated(lambda each: each.coded("gradients")), plan.training.data_bucket
    sent = (wire_bytes(plan) if codes is None else codes.bytes) * trained
    calls = 1.0 if cap is None else np.maximum(sent / cap, 1.0)
    seconds = calls * communicate.reduce_scatter_s(m, sent / calls, who.shards, m.network_frac)
    if codes is not None:
        seconds = seconds + _recode_s(m, codes, wire_bytes(plan)) * trained
    if np.any(who.mirrors.ranks > 1):
        seconds = seconds + communicate.all_reduce_s(m, sent / who.shards.ranks, who.mirrors)
    return sent, seconds


def _recode_s(m: Machine, codes: Codes, wide: float) -> Array:
    """Seconds per element of quantising before a collective and dequantising after it: one
    memory-bound kernel each."""
    moved = 2 * codes.times * (wide + codes.bytes)
    return moved / (m.elementwise_frac * m.memory_bandwidth)


def layer_traffic(
    plan: Plan,
    c: Columns,
    layer_passes: Array,
    who: Replicas,
    sharded: ShardedLayer,
    extra_s: Array,
) -> list[Traffic]:
    """Rows of the communication table for gathers and reductions of layers. layer_passes: layers x
    micro-batches of the slowest stage; extra_s: exposed seconds per layer."""
    across = (who.shards.nodes > 1) * 1.0
    passes = np.where((c.zero >= 3) & who.several, layer_passes, 0.0)
    gathers, again = (passes, passes) if sharded.near else (2 * passes, 0.0 * passes)
    reduced = layer_passes * reductions(plan, c)
    scatters = np.where(c.syncs_per_layer & who.several, reduced, 0.0)
    whole = gathers * sharded.gather + again * sharded.again + scatters * sharded.scatter

    def row(
        operation: str, content: str, sent: Array, count: Array, each_s: Array, far: Array
    ) -> Traffic:
        seconds = count * each_s
        exposed = np.minimum(layer_passes * extra_s * share_of(seconds, whole), seconds)
        times = count, seconds, exposed
        return Traffic(operation, "data", content, "data_parallel", sent, *times, far)

    near_bytes = compute_bytes(plan) / shard_bytes(plan) * sharded.weight_bytes
    parameters = "all_gather", "parameters of a layer", sharded.weight_bytes
    gradients = "reduce_scatter", "gradients of a layer", sharded.gradient_bytes
    return [
        row(*parameters, gathers, sharded.gather, across),
        row("all_gather", "second copy of a layer", near_bytes, again, sharded.again, 0.0 * across),
        # shards inside a node are reduced over their mirrors in others
        row(*gradients, scatters, sharded.scatter, np.maximum(across, who.mirrors.nodes > 1)),
    ]
