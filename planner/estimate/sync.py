"""Data-parallel communication of a layout: gathers and reductions of sharded layers, gradient
reduction at the end."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from planner.estimate import communicate, mechanisms, quantised
from planner.estimate.communicate import Group, Traffic, place, place_twice, share_of
from planner.estimate.gradients import Buckets, buckets_of, first_bytes, tensors
from planner.estimate.machine import Machine
from planner.estimate.trained import Weights, trained_count, trained_share
from planner.formulas import data_parallel, overlap
from planner.formulas import experts as sharing
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.layout import OFFLOADED_PARAMS
from planner.specs.mechanism import Codes, Shard, Sharded
from planner.specs.names import SyncPart
from planner.specs.plan import Plan

# parts in which a stack without buckets of its own reduces: about a bucket of torch's DDP
LAST_BYTES = 25e6
_WIRE_BYTES = {"fp32": 4.0, "bf16": 2.0}
# share of the gathers of embedding and head that nothing hides under prefetching: the one forward,
# at the start of the step
_ROOT_EXPOSED = 0.5


@dataclass(frozen=True)
class Replicas:
    """Who holds copies of what."""

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
    found = Replicas(
        group=place(ranks, tp, tiers),
        shards=place(shard, tp, tiers),
        mirrors=place(mirrors, tp * shard, tiers),
        experts=place(sharing.replicas(plan, c), c.ep * sharing.tensor_of(plan, tp), tiers),
        several=ranks > 1,
    )
    if not np.any(apart := c.is_placement("tp-cp-pp-dp")):
        return found
    # the stages of a pipeline lie between replicas; experts are not shared out in this order
    # (rules)
    stride = tp * cp * c.pp
    group = place_twice(cp, tp, c.dp, stride, tiers)
    within = np.minimum(cp, shard)
    shards = place_twice(within, tp, shard / within, stride, tiers)
    far = place(mirrors, np.where(shard >= cp, stride * shard / cp, tp * shard), tiers)

    def either(one: Group, other: Group) -> Group:
        island = None
        if one.ranks_per_island is not None and other.ranks_per_island is not None:
            island = np.where(apart, other.ranks_per_island, one.ranks_per_island)
        node = np.where(apart, other.ranks_per_node, one.ranks_per_node)
        return Group(one.ranks, node, island)

    return Replicas(
        either(found.group, group),
        either(found.shards, shards),
        either(found.mirrors, far),
        either(found.experts, group),
        found.several,
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
    return plan.stack.state.compute if plan.training.mixed_precision else _WIRE_BYTES["fp32"]


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
    asked = plan.training.data_overlap
    return asked is None or part in asked


def shard_bytes(plan: Plan) -> float:
    """Bytes of a parameter on its way to the ranks that gather it under ZeRO-3."""
    codes = mechanisms.coded(plan, "weights")
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
    """The gradient buckets of what the plan trains, closed at `cap` bytes: of a part of the weights
    equal ones."""
    fusion = plan.stack.fusion
    if plan.training.partial:
        held = wire_bytes(plan) * trained_count(plan)
        count = max(math.ceil(held / cap), 1)
        layers = min(first_bytes(cap) / max(held, 1.0), 1.0) * plan.model.layers
        return Buckets(count, layers * trained_share(plan), held / count)
    return buckets_of(plan.model, fusion.joint_qkv, fusion.joint_gate, wire_bytes(plan), cap)


def sharded_layer(plan: Plan, m: Machine, c: Columns, of: Weights, who: Replicas) -> ShardedLayer:
    """Parameters are gathered for forward and for backward, gradients reduced, for every
    micro-batch."""
    per_layer, trained = of.every.per_layer(), trained_share(plan) * of.trained.per_layer()
    if plan.training.adapter is not None:
        per_layer = per_layer + trained
    each, own = shard_bytes(plan), gathered_bytes(plan)
    weights = each * per_layer - quantised.saved_per_layer(plan, c, of.every, each)
    codes = mechanisms.coded(plan, "gradients")
    gradients = (wire_bytes(plan) if codes is None else codes.bytes) * trained
    gather = communicate.all_gather_s(m, weights, who.shards, m.network_frac)
    if (narrow := mechanisms.coded(plan, "weights")) is not None:
        gather = gather + _recode_s(m, narrow, own) * per_layer
    again = gather
    near = mechanisms.near(plan, c, lambda: Sharded(per_layer, own, who.shards.ranks))
    if near is not None:
        neighbours = place(near, c.tp, plan.cluster.tiers)
        again = communicate.all_gather_s(m, own * per_layer, neighbours)
    streamed: Array = 0.0
    zero3 = c.zero >= 3
    if np.any(
        offloaded := c.offloads(*OFFLOADED_PARAMS)
    ):  # each rank first brings its shard from host memory
        shard = data_parallel.streamed_state_s(
            per_layer / who.shards.ranks,
            host_bytes_per_s=m.host_bandwidth,
            bytes_per_parameter=compute_bytes(plan),
        )
        whole = compute_bytes(plan) * per_layer
        shard = mechanisms.brought(plan, c, shard, lambda: Shard(c, m, whole / who.shards.ranks))
        shard = np.where(offloaded, shard, 0.0)
        if plan.stack.overlap.host_shards:
            gather, again = gather + shard, again + shard
        else:
            streamed = np.where(zero3, shard, 0.0)
    cap = plan.training.data_bucket
    calls = 1.0 if cap is None else np.maximum(gradients / cap, 1.0)
    scatter = calls * communicate.reduce_scatter_s(m, gradients / calls, who.shards, m.network_frac)
    if codes is not None:
        scatter = scatter + _recode_s(m, codes, wire_bytes(plan)) * trained
    if np.any(who.mirrors.ranks > 1):
        scatter = scatter + communicate.all_reduce_s(m, gradients / who.shards.ranks, who.mirrors)
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


def _recode_s(m: Machine, codes: Codes, wide: float) -> Array:
    """Seconds per element in which codes are made of what is sent, and read back: memory moved by
    one kernel each."""
    moved = 2 * codes.times * (wide + codes.bytes)
    return moved / (m.elementwise_frac * m.memory_bandwidth)


@dataclass(frozen=True)
class StageElements:
    """Elements that a stage reduces and updates."""

    shared: Array  # all but routed experts
    experts: Array
    root: Array  # of `shared`, embedding and head, which FSDP handles as one group
    held: Array  # all of embedding and head, frozen or not


@dataclass(frozen=True)
class EndOfStep:
    """Time that data parallelism adds once per step."""

    exposed: Array
    total: Array  # hidden and exposed together
    reduced: Array  # time of the gradients' all-reduce, or of the reduce-scatter of ZeRO-1
    gathered: Array  # time of ZeRO-1's parameter all-gather
    gathered_bytes: Array
    elements: Array  # parameters of the stage


def end_of_step(
    plan: Plan,
    m: Machine,
    c: Columns,
    who: Replicas,
    sharded: ShardedLayer,
    of: StageElements,
    backward_window_s: Array,
    layer_backward_s: Array,
) -> EndOfStep:
    """Gradient reduction of a stage, or the unhidden ends of a sharded pass.

    backward_window_s: time gradients can hide behind; layer_backward_s: of one layer and
    micro-batch.
    """
    stack, training = plan.stack, plan.training
    shared, experts, root = of.shared, of.experts, of.root
    wire, narrow = wire_bytes(plan), compute_bytes(plan)
    zero1 = c.zero >= 1
    cap = training.data_bucket or stack.overlap.bucket
    own = None if cap is None else bucketing(plan, float(cap))
    buckets = 1 if own is None else own.count

    def reduce(elements: Array, group: Group) -> Array:
        calls = np.maximum(buckets * elements / np.maximum(shared + experts, 1.0), 1.0)
        whole = calls * communicate.all_reduce_s(m, wire * elements / calls, group)
        if not stack.overlap.sharded_all_reduce:
            parts = wire * elements / calls
            whole = np.where(zero1, calls * communicate.reduce_scatter_s(m, parts, group), whole)
        return np.where(elements > 0, whole, 0.0)  # a model without experts makes no call for them

    def gather(whole_bytes: Array, group: Group) -> Array:
        return np.where(
            zero1 & (whole_bytes > 0), communicate.all_gather_s(m, whole_bytes, group), 0.0
        )

    whole_s = reduce(shared, who.group)
    if np.any(mirrored := who.mirrors.ranks > 1):  # hybrid: shards, and then what mirrors hold
        parts = communicate.reduce_scatter_s(m, wire * shared, who.shards)
        among = communicate.all_reduce_s(m, wire * shared / who.shards.ranks, who.mirrors)
        whole_s = np.where(mirrored, parts + among, whole_s)
    reduced = whole_s + reduce(experts, who.experts)
    each = gathered_bytes(plan)
    shared_bytes = narrow * root + each * (shared - root)
    gathered = gather(shared_bytes, who.shards) + gather(each * experts, who.experts)
    sync = reduced + gathered
    last_bytes = np.minimum(LAST_BYTES if own is None else own.last_bytes, wire * shared)
    last_s = communicate.all_reduce_s(m, last_bytes, who.group)
    if own is None:  # equal parts, ready at equal times
        first_s = backward_window_s * last_bytes / np.maximum(wire * shared, 1.0)
    else:
        first_s = own.first_layers * layer_backward_s
    may_overlap = np.where(zero1, stack.overlap.sharded_sync, stack.overlap.gradient_sync) > 0
    if training.overlap is False:
        may_overlap = may_overlap & False
    hidden = reduced * beside(plan, "reduce") + gathered * beside(plan, "forward")
    left = overlap.bucketed_exposed_s(hidden, backward_window_s, first_s, last_s, m.slowdown)
    exposed = np.where(may_overlap, left + (sync - hidden), sync)

    called = np.zeros_like(sync)
    if stack.overlap.broadcast is not None:  # after the update, beside nothing
        found = tensors(plan.model, stack.fusion.joint_qkv, stack.fusion.joint_gate)
        ranks, each_s = who.shards.ranks, stack.overlap.broadcast
        called = data_parallel.broadcasts_s(ranks, len(found) / c.pp, each_s)
        called = np.where(zero1 & (who.shards.nodes > 1), called, 0.0)
    exposed, gathered, sync = exposed + called, gathered + called, sync + called

    # under ZeRO-2/3 the first gather and the last reduction have nothing to hide behind, nor has
    # half of the root group; without prefetching all layers were waited for already, and the whole
    # root group is
    ends = sharded.gather * beside(plan, "forward") + sharded.scatter * beside(plan, "reduce")
    root_s = communicate.all_gather_s(m, 2 * narrow * of.held, who.shards)
    waited = not (beside(plan, "forward") and beside(plan, "backward"))
    root_exposed = 1.0 if waited else _ROOT_EXPOSED
    per_layer = c.syncs_per_layer
    # ZeRO-2 that keeps parameters whole gathers what was updated, with nothing to hide it (arXiv
    # 1910.02054, section 7.2.1): Qwen2.5-32B of llmq 8.4 -> 0.2 %, LLaMA-7B of the A800 gist 22.5
    # -> 21.9 %. FSDP gathers them layer by layer in the next forward pass, behind the layer before
    # where it prefetches; the root group has its own gather
    late = gathered
    if stack.state.zero2_gathers:
        ahead = stack.overlap.prefetch
        late = (
            0.0 * gathered if ahead else gather(each * np.maximum(shared - root, 0.0), who.shards)
        )
    updated = np.where(per_layer & (c.zero == 2), late, 0.0)
    exposed = np.where(
        per_layer,
        (ends + root_exposed * root_s if stack.overlap.prefetch else root_s) + updated,
        exposed,
    )
    total = np.where(per_layer, ends + root_s + updated, sync)
    once = who.several & ~per_layer
    return EndOfStep(
        np.where(who.several, exposed, 0.0),
        np.where(who.several, total, 0.0),
        np.where(once, reduced, 0.0),
        np.where(once, gathered, np.where(who.several, updated, 0.0)),
        shared_bytes + each * experts,
        shared + experts,
    )


def traffic(
    plan: Plan,
    c: Columns,
    layer_passes: Array,
    who: Replicas,
    sharded: ShardedLayer,
    extra_s: Array,
    end: EndOfStep,
) -> list[Traffic]:
    """The data-parallel rows of the communication table. layer_passes: layers x micro-batches of
    the slowest stage."""
    zero3 = c.zero >= 3
    per_layer = c.syncs_per_layer
    across_shards, across_all = (who.shards.nodes > 1) * 1.0, (who.group.nodes > 1) * 1.0
    passes = np.where(zero3 & who.several, layer_passes, 0.0)
    gathers, again = (passes, passes) if sharded.near else (2 * passes, 0.0 * passes)
    scatters = np.where(per_layer & who.several, layer_passes, 0.0)
    whole = gathers * sharded.gather + again * sharded.again + scatters * sharded.scatter
    gather_share = share_of(gathers * sharded.gather, whole)
    again_share = share_of(again * sharded.again, whole)
    exposed = layer_passes * extra_s

    # once per step: the exposed part is shared between reduction and gather as their times are
    shown = np.clip(share_of(end.exposed, end.reduced + end.gathered), 0.0, 1.0)
    wire = wire_bytes(plan) * end.elements
    halves = (c.zero >= 1) & (not plan.stack.overlap.sharded_all_reduce)

    def once(
        operation: str, what: str, tensor_bytes: Array, seconds: Array, where: Array
    ) -> Traffic:
        seconds = np.where(where, seconds, 0.0)
        return Traffic(
            operation,
            "data",
            what,
            "data_parallel",
            tensor_bytes,
            (seconds > 0) * 1.0,
            seconds,
            seconds * shown,
            across_all,
        )

    return [
        Traffic(
            "all_gather",
            "data",
            "parameters of a layer",
            "data_parallel",
            sharded.weight_bytes,
            gathers,
            gathers * sharded.gather,
            np.minimum(exposed * gather_share, gathers * sharded.gather),
            across_shards,
        ),
        Traffic(
            "all_gather",
            "data",
            "second copy of a layer",
            "data_parallel",
            compute_bytes(plan) / shard_bytes(plan) * sharded.weight_bytes,
            again,
            again * sharded.again,
            np.minimum(exposed * again_share, again * sharded.again),
            0.0 * across_shards,
        ),
        Traffic(
            "reduce_scatter",
            "data",
            "gradients of a layer",
            "data_parallel",
            sharded.gradient_bytes,
            scatters,
            scatters * sharded.scatter,
            np.minimum(exposed * (1 - gather_share - again_share), scatters * sharded.scatter),
            across_shards,
        ),
        once("all_reduce", "gradients of the stage", wire, end.reduced, ~halves),
        once("reduce_scatter", "gradients of the stage", wire, end.reduced, halves),
        once(
            "all_gather",
            "parameters of the stage",
            end.gathered_bytes,
            end.gathered,
            end.gathered > 0,
        ),
    ]
