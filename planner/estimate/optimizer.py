"""Time of the optimizer: on the GPU, and on the CPU of the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate import mechanisms, sync
from planner.estimate.machine import Machine
from planner.estimate.state_types import moment_type_bytes
from planner.formulas import data_parallel, kernels
from planner.formulas import offload as formulas
from planner.formulas.optimizers import OPTIMIZERS
from planner.ledger import Array, Ledger
from planner.specs.columns import Columns
from planner.specs.host import CPU_OPTIMIZERS, CpuOptimizer
from planner.specs.layout import OFFLOADED_OPTIMIZER
from planner.specs.plan import Plan

_FP32_BYTES = 4.0  # of master weights and gradients in host memory


@dataclass(frozen=True)
class Beside:
    """Seconds that run while states are on their way, or are updated on the CPU."""

    backward: Array  # of one micro-batch, beside which gradients leave
    components: Ledger  # of the step without the optimizer


@dataclass(frozen=True)
class Update:
    """Time that the optimizer adds to a step."""

    seconds: Array  # where states are offloaded with their way to host memory or the CPU
    on_cpu: Array  # of them, what the CPU computes


def optimizer_s(
    plan: Plan, m: Machine, c: Columns, owned: Array, matrices_s: Array, beside: Beside
) -> Update:
    """The update of a rank.

    owned: elements that the rank updates; matrices_s: seconds of work on whole matrices, beside
    streaming the states.
    """
    on_gpu = _on_gpu_s(m, owned) + matrices_s
    offloaded = c.offloads(*OFFLOADED_OPTIMIZER)
    if not np.any(offloaded):
        return Update(on_gpu, 0.0)
    if plan.stack.offload_update == "gpu":  # states live in host memory and pass through the GPU
        streamed = data_parallel.streamed_state_s(owned, host_bytes_per_s=m.host_bandwidth)
        return Update(on_gpu + np.where(offloaded, streamed, 0.0), 0.0)
    on_cpu = data_parallel.cpu_step_s(owned * plan.cluster.gpus_per_host, cpu_rate(plan, m))
    back = formulas.parameters_back_s(
        sync.compute_bytes(plan) * owned, m.host_copy_bandwidth, m.host_staged, _how(plan).staged
    )
    leaving = formulas.gradients_exposed_s(
        sync.wire_bytes(plan) * owned,
        _FP32_BYTES * owned,
        m.host_copy_bandwidth,
        beside.backward,
        c.microbatches(plan.training.global_batch),
    )
    hides = mechanisms.beside_cpu_update(plan, c, beside.backward, beside.components)
    late = formulas.delayed_update_exposed_s(on_cpu + back, hides)
    return Update(np.where(offloaded, leaving + late, on_gpu), np.where(offloaded, on_cpu, 0.0))


def _how(plan: Plan) -> CpuOptimizer:
    return CPU_OPTIMIZERS[plan.training.cpu_optimizer or plan.stack.cpu_optimizer]


def cpu_rate(plan: Plan, m: Machine) -> Array:
    """Parameters per second that a host updates for all of its ranks."""
    training, how = plan.training, _how(plan)
    moved = formulas.update_bytes(
        _FP32_BYTES,
        OPTIMIZERS[training.optimizer].moment_bytes(moment_type_bytes(plan)),
        _FP32_BYTES,
        sync.compute_bytes(plan) if training.mixed_precision else 0.0,
        (how.master, how.moments, how.gradient, how.copy),
        how.other_bytes,
    )
    return m.host_update / moved


def _on_gpu_s(m: Machine, owned: Array) -> Array:
    if np.any(np.asarray(m.optimizer_s) > 0):
        return kernels.measured_operator_s(owned, 0.0, seconds_per_element=m.optimizer_s, gap_s=0.0)
    return data_parallel.optimizer_step_s(
        owned,
        m.optimizer_bytes,
        memory_bytes_per_s=m.memory_bandwidth,
        elementwise_frac=m.stream_frac,
    )
