"""Time of the optimizer: on the GPU, on the CPU of the host, and past NVMe drives."""

from __future__ import annotations

import numpy as np

from planner.estimate import sync
from planner.estimate.machine import Machine
from planner.estimate.memory import offload, state_ledger
from planner.formulas import data_parallel, kernels
from planner.formulas import offload as formulas
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.layout import NVME, NVME_PARAMS, OFFLOADED_OPTIMIZER
from planner.specs.plan import Plan


def optimizer_s(
    plan: Plan, m: Machine, c: Columns, parameters: Array, shard_ranks: Array
) -> tuple[Array, Array | None]:
    """(seconds of the update, where states are offloaded with their way to host memory or the CPU;
    what waiting for NVMe drives adds, None where nobody uses any).

    parameters: elements of a rank before ZeRO shards their states over `shard_ranks`.
    """
    owned = parameters / data_parallel.shard_count(c.zero, 1.0, shard_ranks)
    on_gpu = _on_gpu_s(m, owned)
    offloaded = c.offloads(*OFFLOADED_OPTIMIZER)
    if not np.any(offloaded):
        return on_gpu, None
    streamed = data_parallel.streamed_state_s(owned, host_bytes_per_s=m.host_bandwidth)
    if plan.stack.offload_update == "gpu":  # states live in host memory and pass through the GPU
        return on_gpu + np.where(offloaded, streamed, 0.0), None
    on_cpu = data_parallel.cpu_step_s(owned * plan.cluster.gpus_per_host, m.cpu_adam)
    waiting = _drives_s(plan, m, c, owned, on_cpu) if np.any(c.offloads(*NVME)) else None
    return np.where(offloaded, streamed + on_cpu, on_gpu), waiting


def _on_gpu_s(m: Machine, owned: Array) -> Array:
    if np.any(np.asarray(m.optimizer_s) > 0):
        return kernels.measured_operator_s(owned, 0.0, seconds_per_element=m.optimizer_s, gap_s=0.0)
    return data_parallel.optimizer_step_s(
        owned,
        m.optimizer_bytes,
        memory_bytes_per_s=m.memory_bandwidth,
        elementwise_frac=m.stream_frac,
    )


def _drives_s(plan: Plan, m: Machine, c: Columns, owned: Array, update_s: Array) -> Array:
    """What drives add to the update: states and gradients are read and written in a step,
    parameters written where they live on drives."""
    state = state_ledger(plan)["optimizer"] + offload.GRADIENT_BYTES
    parameter = np.where(c.offloads(*NVME_PARAMS), sync.compute_bytes(plan), 0.0)
    read = formulas.drive_s(state * owned, m.nvme_read)
    write = formulas.drive_s((state + parameter) * owned, m.nvme_write)
    tiled = formulas.tiled_update_s(read, update_s, write, offload.tiles(owned))
    return np.where(c.offloads(*NVME), tiled - update_s, 0.0)
