"""What data parallelism keeps and moves: shards of state, bytes of each collective, work of the optimizer."""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula


@formula(
    unit="1",
    equation="d_shard if zero >= level else 1",
    source="ZeRO, Rajbhandari et al. 2020 (arXiv 1910.02054) section 5",
)
def shard_count(zero: Array, level: float, shard_ranks: Array) -> Array:
    """Parts a state is cut into: the optimizer from ZeRO-1 on (level 1), gradients from 2, parameters from 3."""
    return np.where(zero >= level, np.maximum(shard_ranks, 1.0), 1.0)


@formula(
    unit="B",
    equation="2 D (d-1)/d for an all-reduce; 3 D (d-1)/d for ZeRO-3: two gathers and a reduce-scatter",
    source="ZeRO, arXiv 1910.02054 section 7: 2D for DDP, ZeRO-1 and ZeRO-2, 3D for ZeRO-3, hence 1.5x and not 3x",
)
def ring_volume_bytes(parameters: Array, zero: Array, shard_ranks: Array, bytes_per_element: Array) -> Array:
    """Bytes that each rank sends per step for one micro-batch, D being the bytes of all parameters or gradients."""
    passes = np.where(zero >= 3, 3.0, 2.0)
    return passes * parameters * bytes_per_element * (shard_ranks - 1) / np.maximum(shard_ranks, 1)


@formula(
    unit="s",
    equation="bytes per parameter * parameters / (HBM frac)",
    source="the step is bound by memory traffic; own count",
)
def optimizer_step_s(
    parameters: Array, bytes_per_parameter: Array, *, memory_bytes_per_s: Array, elementwise_frac: Array
) -> Array:
    """Time of a fused optimizer over this rank's share of the parameters."""
    return parameters * bytes_per_parameter / (memory_bytes_per_s * elementwise_frac)


@formula(
    unit="s",
    equation="bytes parameters / link; 16 B for an offloaded optimizer",
    source="ZeRO-Offload, Ren et al. 2021 (arXiv 2101.06840): gradients out, parameters or states back over the host link",
)
def streamed_state_s(parameters: Array, *, host_bytes_per_s: Array, bytes_per_parameter: float = 16.0) -> Array:
    """Time to move what is offloaded between GPU and host memory, both ways together."""
    return bytes_per_parameter * parameters / host_bytes_per_s


@formula(
    unit="s",
    equation="parameters of the node / CPU rate",
    source="ZeRO-Offload, arXiv 2101.06840 section 5; CPU Adam rate per stack: 26.9 -> 5.5 % on offloaded runs",
)
def cpu_step_s(node_parameters: Array, cpu_parameters_per_s: Array) -> Array:
    """Time of the optimizer on the host's CPUs, which serve all GPUs of the node."""
    return node_parameters / cpu_parameters_per_s
