"""Memory and traffic of data parallelism: shards of state, bytes of each collective, work of the
optimizer."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from planner.ledger import Array, formula, rowwise


@formula(
    unit="1",
    equation="d_shard if zero >= level else 1",
    source="ZeRO, Rajbhandari et al. 2020 (arXiv 1910.02054) section 5",
)
def shard_count(zero: Array, level: float, shard_ranks: Array) -> Array:
    """Parts a state is cut into: the optimizer from ZeRO-1 on (level 1), gradients from 2,
    parameters from 3."""
    return np.where(zero >= level, np.maximum(shard_ranks, 1.0), 1.0)


@formula(
    unit="1",
    equation="sum / max part; parts: each tensor, the largest first, to the smallest part so far",
    source=(
        "_partition_parameters of torch/distributed/optim/zero_redundancy_optimizer.py (2.13);"
        " greedy scheduling, Graham 1969"
    ),
)
def whole_tensor_shards(sizes: Sequence[float], ranks: Array) -> Array:
    """Ranks that would share as much as the fullest one has, were elements divided evenly. sizes:
    elements of tensors."""
    ordered = sorted(sizes, reverse=True)

    def even(counts: Array) -> Array:
        several, where = np.unique(counts, return_inverse=True)
        shares = []
        for count in several:
            parts = [0.0] * int(count)
            for size in ordered:
                heapq.heapreplace(parts, parts[0] + size)
            shares.append(sum(ordered) / max(parts))
        return np.array(shares)[where]

    return rowwise(even, ranks)


@formula(
    unit="B",
    equation=(
        "2 D (d-1)/d for an all-reduce; 3 D (d-1)/d for ZeRO-3: two gathers and a reduce-scatter"
    ),
    source=(
        "ZeRO, arXiv 1910.02054 section 7: 2D for DDP, ZeRO-1 and ZeRO-2, 3D for ZeRO-3, hence 1.5x"
        " and not 3x"
    ),
)
def ring_volume_bytes(
    parameters: Array, zero: Array, shard_ranks: Array, bytes_per_element: Array
) -> Array:
    """Bytes that each rank sends per step for one micro-batch, D being the bytes of all parameters
    or gradients."""
    passes = np.where(zero >= 3, 3.0, 2.0)
    return passes * parameters * bytes_per_element * (shard_ranks - 1) / np.maximum(shard_ranks, 1)


@formula(
    unit="s",
    equation="bytes per parameter * parameters / (HBM frac)",
    source="the step is bound by memory traffic; own count",
)
def optimizer_step_s(
    parameters: Array,
    bytes_per_parameter: Array,
    *,
    memory_bytes_per_s: Array,
    elementwise_frac: Array,
) -> Array:
    """Time of a fused optimizer over this rank's share of the parameters."""
    return parameters * bytes_per_parameter / (memory_bytes_per_s * elementwise_frac)


@formula(
    unit="s",
    equation="bytes parameters / link; 16 B for an offloaded optimizer",
    source=(
        "ZeRO-Offload, Ren et al. 2021 (arXiv 2101.06840): gradients out, parameters or states back"
        " over the host link"
    ),
)
def streamed_state_s(
    parameters: Array, *, host_bytes_per_s: Array, bytes_per_parameter: float = 16.0
) -> Array:
    """Time to move what is offloaded between GPU and host memory, both ways together."""
    return bytes_per_parameter * parameters / host_bytes_per_s


@formula(
    unit="s",
    equation="parameters of the node / CPU rate",
    source=(
        "ZeRO-Offload, arXiv 2101.06840 section 5; the rate is that of the host and the software,"
        " formulas.offload.update_bandwidth_bytes_per_s"
    ),
)
def cpu_step_s(node_parameters: Array, cpu_parameters_per_s: Array) -> Array:
    """Time of the optimizer on the host's CPUs, which serve all GPUs of the node."""
    return node_parameters / cpu_parameters_per_s


@formula(
    unit="B",
    equation="m W (d-1)/d under ZeRO-3, else 0",
    source=(
        "ZeRO, arXiv 1910.02054 section 7.2.2: parameters are gathered before they are used; once"
        " per micro-batch"
    ),
)
def forward_volume_bytes(
    parameter_bytes: Array, zero: Array, shard_ranks: Array, microbatches: Array
) -> Array:
    """Bytes that each rank sends during the forward passes of a step, W being the bytes of all
    parameters on the wire."""
    share = (shard_ranks - 1) / np.maximum(shard_ranks, 1.0)
    return np.where(zero >= 3, microbatches * share * parameter_bytes, 0.0)


@formula(
    unit="B",
    equation="DDP 2 G; ZeRO-1 G; ZeRO-2 m G; ZeRO-3 m (W + G); each (d-1)/d",
    source=(
        "ZeRO, arXiv 1910.02054 section 7; gradients that no rank keeps whole are reduced in every"
        " micro-batch"
    ),
)
def backward_volume_bytes(
    parameter_bytes: Array,
    gradient_bytes: Array,
    zero: Array,
    shard_ranks: Array,
    microbatches: Array,
    reductions: Array = 1.0,
) -> Array:
    """Bytes that each rank sends during the backward passes of a step, G being the bytes of all
    gradients on the wire.

    reductions: all-reduces of DDP or ZeRO-1 per step, 1 with no_sync (accumulate, then reduce) and
    m without.
    """
    share = (shard_ranks - 1) / np.maximum(shard_ranks, 1.0)
    passes = np.where(zero >= 2, microbatches, np.where(zero >= 1, reductions, 2 * reductions))
    again = np.where(zero >= 3, microbatches * parameter_bytes, 0.0)
    return share * (passes * gradient_bytes + again)


@formula(
    unit="B",
    equation="W (d-1)/d under ZeRO-1 and ZeRO-2, else 0",
    source=(
        "ZeRO, arXiv 1910.02054 section 7.2.1: each rank updates its part and all gather the result"
    ),
)
def optimizer_volume_bytes(parameter_bytes: Array, zero: Array, shard_ranks: Array) -> Array:
    """Bytes that each rank sends after the optimizer step."""
    share = (shard_ranks - 1) / np.maximum(shard_ranks, 1.0)
    return np.where((zero >= 1) & (zero < 3), share * parameter_bytes, 0.0)


@formula(
    unit="s",
    equation="min(d, n) t",
    source=(
        "InternLM/InternEvo, internlm/solver/optimizer/hybrid_zero_optim.py, broadcast_params: one"
        " call per rank, none of ranks without a tensor"
    ),
)
def broadcasts_s(shard_ranks: Array, tensors: Array, each_s: Array) -> Array:
    """Latency of gathering n whole tensors owned by d ranks, by one broadcast per owning rank (at
    most n); their bytes come on top."""
    return np.minimum(shard_ranks, tensors) * each_s


@formula(
    unit="B",
    equation=(
        "V / g where a ring over whole nodes sends V; V where each rank sits in a node of its own"
    ),
    source="of g ranks of a ring in a node one sends to the next node",
)
def leaving_bytes(sent_bytes: Array, ranks: Array, ranks_per_node: Array) -> Array:
    """Bytes per GPU that leave the node, of a ring in which each rank sends `sent_bytes`."""
    return np.where(ranks > ranks_per_node, sent_bytes / np.maximum(ranks_per_node, 1.0), 0.0)


@formula(
    unit="s",
    equation="exchange / H",
    source=(
        "local SGD, Stich 2019 (arXiv 1805.09767); DiLoCo, Douillard et al. 2023 (arXiv"
        " 2311.08105): one synchronisation in H steps"
    ),
)
def local_steps_s(exchange_s: Array, local_steps: Array) -> Array:
    """Time per step, on average, of a synchronisation that happens every H steps and that nothing
    hides."""
    return exchange_s / local_steps


@formula(
    unit="1",
    equation="1 + (f - 1) / sqrt(slack + 1)",
    source=(
        "Ho et al. 2013 (NIPS, stale synchronous parallel): who may run ahead s steps waits for"
        " sums of s + 1; own derivation"
    ),
)
def bounded_staleness_factor(straggler_factor: Array, slack_steps: Array) -> Array:
    """Slow-down by jitter when ranks may be `slack_steps` apart; 0 is the synchronous step,
    infinite slack never waits."""
    return 1 + (straggler_factor - 1) / np.sqrt(slack_steps + 1)


@formula(
    unit="1",
    equation="n / (n - b)",
    source=(
        "backup workers, Chen et al. 2016 (arXiv 1604.00981): the gradients of the b slowest of n"
        " workers are dropped"
    ),
)
def dropped_batch_factor(workers: Array, backups: Array) -> Array:
    """Steps times batch that the same number of used samples takes when the work of b workers is
    dropped in each step."""
    return workers / (workers - backups)
