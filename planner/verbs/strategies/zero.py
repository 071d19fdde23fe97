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
        "zero-1",
        "ZeRO-1 (DeepSpeed)",
        "ZeRO",
        "the optimizer state is sharded; reduce-scatter, update, all-gather",
        _ZERO + " section 5.1",
        "deepspeed",
        1,
    ),
    Strategy(
        "zero-2",
        "ZeRO-2 (DeepSpeed)",
        "ZeRO",
        "gradients too: reduced to their owner in every micro-batch",
        _ZERO + " section 5.2",
        "deepspeed",
        2,
    ),
    Strategy(
        "zero-3",
        "ZeRO-3 (DeepSpeed)",
        "ZeRO",
        "parameters too: gathered for forward and again for backward",
        _ZERO + " section 5.3",
        "deepspeed",
        3,
    ),
    Strategy(
        "zero-3-hpz",
        "ZeRO-3 with hpZ (ZeRO++)",
        "ZeRO",
        "each node keeps a second 16-bit copy, so that backward gathers inside the node",
        "ZeRO++, Wang et al. 2023 (arXiv 2306.10209) section 3.2",
        "deepspeed",
        3,
        _secondary_partition,
        refuses=several_nodes,
    ),
    Strategy(
        "zero-offload",
        "ZeRO-Offload",
        "offload",
        "ZeRO-2 with optimizer state and update on the CPU",
        _OFFLOAD,
        "deepspeed",
        2,
        offload="optimizer",
    ),
    Strategy(
        "zero-offload-dpu",
        "ZeRO-Offload, delayed update",
        "offload",
        "the CPU updates beside the next step, which uses parameters one step old",
        _OFFLOAD + " section 5.2",
        "deepspeed",
        2,
        _delayed_update,
        "optimizer",
        steps=no_cost(
            "gradients of parameters one step old (staleness 1): taken as no cost; yours may need"
            " more steps"
        ),
    ),
    Strategy(
        "zero-infinity",
        "ZeRO-Infinity to host memory",
        "offload",
        "ZeRO-3 with parameters and optimizer in host memory",
        "ZeRO-Infinity, Rajbhandari et al. 2021 (arXiv 2104.07857)",
        "deepspeed",
        3,
        offload="params",
    ),
    Strategy(
        "fsdp-full-shard",
        "FSDP FULL_SHARD",
        "FSDP",
        "as ZeRO-3; the next layer is gathered beside the one at work",
        _FSDP,
        "pytorch-fsdp",
        3,
    ),
    Strategy(
        "fsdp-no-prefetch",
        "FSDP FULL_SHARD, no prefetch",
        "FSDP",
        "nothing is gathered ahead: a layer waits for its parameters",
        _FSDP + " section 3.3",
        "pytorch-fsdp",
        3,
        change=without_overlap,
    ),
    Strategy(
        "fsdp-shard-grad-op",
        "FSDP SHARD_GRAD_OP",
        "FSDP",
        "reshard_after_forward=False: parameters stay gathered from forward to the end of backward",
        _FSDP,
        "pytorch-fsdp",
        2,
        _gathered_once,
    ),
    Strategy(
        "fsdp-no-shard",
        "FSDP NO_SHARD",
        "FSDP",
        "as DDP, without its buckets",
        _FSDP,
        "pytorch-fsdp",
        0,
    ),
    Strategy(
        "fsdp-hybrid-shard",
        "FSDP HYBRID_SHARD",
        "FSDP",
        "sharded inside a node, replicated between nodes: gradient shards are reduced between them",
        _FSDP + " section 3.2.2",
        "pytorch-fsdp",
        3,
        shard="node",
        refuses=several_nodes,
    ),
    Strategy(
        "megatron-distributed-optimizer",
        "Megatron-Core distributed optimizer",
        "ZeRO",
        "ZeRO-1 with fp32 gradients and overlapped reduction and gather",
        "NVIDIA Megatron-Core, --use-distributed-optimizer --overlap-grad-reduce"
        " --overlap-param-gather",
        "megatron-core",
        1,
    ),
)
