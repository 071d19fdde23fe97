"""Sharded data parallelism: ZeRO, FSDP, Megatron's distributed optimizer, offloading, and gathers
inside a node."""

from __future__ import annotations

from planner.estimate import communicate, sync
from planner.estimate.states import rank_parameters
from planner.formulas import data_parallel, offload, overlap
from planner.ledger import Array
from planner.verbs.strategies.base import Context, Cost, evaluated


def sharded_cost(
    x: Context,
    gather: Array,
    again: Array,
    scatter: Array,
    volumes: tuple[Array, Array],
    leaving: Array,
    extra_bytes: Array | float = 0.0,
) -> Cost:
    """Cost of gathers and reductions layer by layer; given an estimate's own seconds, it is the
    estimate.

    gather, again, scatter: seconds per layer of the gather before forward, before backward, and of
    the reduction of gradients.
    """
    m, layers = x.m, float(x.plan.model.layers)
    passes = x.microbatches * layers
    forward = overlap.prefetched_exposed_s(x.layer_forward_s, gather, m.slowdown)
    backward = overlap.prefetched_exposed_s(x.layer_backward_s, again + scatter, m.slowdown)
    root = x.parameters - layers * _per_layer(x)
    root_s = communicate.all_gather_s(m, 2 * sync.compute_bytes(x.plan) * root, x.who.shards)
    exposed = passes * (forward + backward) + gather + scatter + 0.5 * root_s
    total = passes * (gather + again + scatter) + gather + scatter + root_s
    return x.cost(exposed, total, (*volumes, 0.0), leaving, extra_bytes=extra_bytes)


def _per_layer(x: Context) -> Array:
    return rank_parameters(x.plan, x.estimates.table).per_layer()


def _in_node(x: Context) -> communicate.Group:
    """The ranks of a node, as a group of its own."""
    inside = x.who.shards.ranks_per_node
    return communicate.Group(inside, inside)


def secondary_partition(x: Context) -> Cost:
    """hpZ: after the forward pass each node keeps all parameters, sharded over its GPUs; backward
    gathers them there."""
    layer = _per_layer(x)
    weights, gradients = sync.compute_bytes(x.plan), sync.wire_bytes(x.plan)
    node, shards = _in_node(x), x.who.shards
    gather = communicate.all_gather_s(x.m, weights * layer, shards, x.m.network_frac)
    again = communicate.all_gather_s(x.m, weights * layer, node)
    scatter = communicate.reduce_scatter_s(x.m, gradients * layer, shards, x.m.network_frac)
    whole, reduced, m = weights * x.parameters, gradients * x.parameters, x.microbatches
    forward = data_parallel.forward_volume_bytes(whole, 3.0, shards.ranks, m)
    scattered = data_parallel.backward_volume_bytes(0.0, reduced, 3.0, shards.ranks, m)
    near = data_parallel.forward_volume_bytes(whole, 3.0, node.ranks, m)
    leaving = data_parallel.leaving_bytes(forward + scattered, shards.ranks, shards.ranks_per_node)
    return sharded_cost(
        x, gather, again, scatter, (forward, scattered + near), leaving, whole / node.ranks
    )


def gathered_once(x: Context) -> Cost:
    """SHARD_GRAD_OP: gathered for forward, kept until backward is over, in every micro-batch."""
    layer, shards = _per_layer(x), x.who.shards
    weights, gradients = sync.compute_bytes(x.plan), sync.wire_bytes(x.plan)
    gather = communicate.all_gather_s(x.m, weights * layer, shards, x.m.network_frac)
    scatter = communicate.reduce_scatter_s(x.m, gradients * layer, shards, x.m.network_frac)
    forward = data_parallel.forward_volume_bytes(
        weights * x.parameters, 3.0, shards.ranks, x.microbatches
    )
    backward = data_parallel.backward_volume_bytes(
        0.0, gradients * x.parameters, 3.0, shards.ranks, x.microbatches
    )
    leaving = data_parallel.leaving_bytes(forward + backward, shards.ranks, shards.ranks_per_node)
    return sharded_cost(x, gather, 0.0 * gather, scatter, (forward, backward), leaving)


def delayed_update(x: Context) -> Cost:
    """One-step delayed parameter update: the CPU's optimizer and its copies run beside the next
    step."""
    whole = evaluated(x)
    away = x.slower * x.estimates.time.components["optimizer"]
    rest = whole.compute_s - away
    beside = offload.delayed_update_exposed_s(away, rest + whole.exposed_s)
    return Cost(
        rest + beside,
        whole.exposed_s,
        whole.hidden_s,
        whole.forward_bytes,
        whole.backward_bytes,
        whole.optimizer_bytes,
        whole.leaving_bytes,
    )
