"""Sharded data parallelism: ZeRO, FSDP, Megatron's distributed optimizer, offloading, and gathers
inside a node."""

from __future__ import annotations

from planner.estimate import communicate, sync
from planner.estimate.states import rank_parameters
from planner.formulas import data_parallel, offload, overlap
from planner.ledger import Array
from planner.verbs.strategies.base import (
    Context,
    Cost,
    Strategy,
    evaluated,
    no_cost,
    several_nodes,
    without_overlap,
)

_ZERO = "ZeRO, Rajbhandari et al. 2020 (arXiv 1910.02054)"
_FSDP = "torch.distributed.fsdp; Zhao et al. 2023 (arXiv 2304.11277)"
_OFFLOAD = "ZeRO-Offload, Ren et al. 2021 (arXiv 2101.06840)"


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


def _secondary_partition(x: Context) -> Cost:
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


def _gathered_once(x: Context) -> Cost:
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


def _delayed_update(x: Context) -> Cost:
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


STRATEGIES = (
    Strategy(
        name="zero-1",
        title="ZeRO-1 (DeepSpeed)",
        family="ZeRO",
        differs="the optimizer state is sharded; reduce-scatter, update, all-gather",
        source=_ZERO + " section 5.1",
        stack="deepspeed",
        zero=1,
    ),
    Strategy(
        name="zero-2",
        title="ZeRO-2 (DeepSpeed)",
        family="ZeRO",
        differs="gradients too: reduced to their owner in every micro-batch",
        source=_ZERO + " section 5.2",
        stack="deepspeed",
        zero=2,
    ),
    Strategy(
        name="zero-3",
        title="ZeRO-3 (DeepSpeed)",
        family="ZeRO",
        differs="parameters too: gathered for forward and again for backward",
        source=_ZERO + " section 5.3",
        stack="deepspeed",
        zero=3,
    ),
    Strategy(
        name="zero-3-hpz",
        title="ZeRO-3 with hpZ (ZeRO++)",
        family="ZeRO",
        differs="each node keeps a second 16-bit copy, so that backward gathers inside the node",
        source="ZeRO++, Wang et al. 2023 (arXiv 2306.10209) section 3.2",
        stack="deepspeed",
        zero=3,
        cost=_secondary_partition,
        refuses=several_nodes,
    ),
    Strategy(
        name="zero-offload",
        title="ZeRO-Offload",
        family="offload",
        differs="ZeRO-2 with optimizer state and update on the CPU",
        source=_OFFLOAD,
        stack="deepspeed",
        zero=2,
        offload="optimizer",
    ),
    Strategy(
        name="zero-offload-dpu",
        title="ZeRO-Offload, delayed update",
        family="offload",
        differs="the CPU updates beside the next step, which uses parameters one step old",
        source=_OFFLOAD + " section 5.2",
        stack="deepspeed",
        zero=2,
        cost=_delayed_update,
        offload="optimizer",
        steps=no_cost(
            "gradients of parameters one step old (staleness 1): taken as no cost; yours may need"
            " more steps"
        ),
    ),
    Strategy(
        name="zero-infinity",
        title="ZeRO-Infinity to host memory",
        family="offload",
        differs="ZeRO-3 with parameters and optimizer in host memory",
        source="ZeRO-Infinity, Rajbhandari et al. 2021 (arXiv 2104.07857)",
        stack="deepspeed",
        zero=3,
        offload="params",
    ),
    Strategy(
        name="fsdp-full-shard",
        title="FSDP FULL_SHARD",
        family="FSDP",
        differs="as ZeRO-3; the next layer is gathered beside the one at work",
        source=_FSDP,
        stack="pytorch-fsdp",
        zero=3,
    ),
    Strategy(
        name="fsdp-no-prefetch",
        title="FSDP FULL_SHARD, no prefetch",
        family="FSDP",
        differs="nothing is gathered ahead: a layer waits for its parameters",
        source=_FSDP + " section 3.3",
        stack="pytorch-fsdp",
        zero=3,
        change=without_overlap,
    ),
    Strategy(
        name="fsdp-shard-grad-op",
        title="FSDP SHARD_GRAD_OP",
        family="FSDP",
        differs=(
            "reshard_after_forward=False: parameters stay gathered from forward to the end of"
            " backward"
        ),
        source=_FSDP,
        stack="pytorch-fsdp",
        zero=2,
        cost=_gathered_once,
    ),
    Strategy(
        name="fsdp-no-shard",
        title="FSDP NO_SHARD",
        family="FSDP",
        differs="as DDP, without its buckets",
        source=_FSDP,
        stack="pytorch-fsdp",
        zero=0,
    ),
    Strategy(
        name="fsdp-hybrid-shard",
        title="FSDP HYBRID_SHARD",
        family="FSDP",
        differs=(
            "sharded inside a node, replicated between nodes: gradient shards are reduced between"
            " them"
        ),
        source=_FSDP + " section 3.2.2",
        stack="pytorch-fsdp",
        zero=3,
        shard="node",
        refuses=several_nodes,
    ),
    Strategy(
        name="megatron-distributed-optimizer",
        title="Megatron-Core distributed optimizer",
        family="ZeRO",
        differs="ZeRO-1 with fp32 gradients and overlapped reduction and gather",
        source="NVIDIA Megatron-Core, --use-distributed-optimizer --overlap-grad-reduce"
        " --overlap-param-gather",
        stack="megatron-core",
        zero=1,
    ),
)
