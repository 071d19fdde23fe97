"""The host that an offloaded optimizer is assumed to be updated on, and the step on others."""

from __future__ import annotations

import dataclasses

from planner.estimate import Estimates, evaluate
from planner.estimate.machine import machine
from planner.estimate.machine.host import threads
from planner.estimate.optimizer import cpu_rate
from planner.specs.columns import Columns
from planner.specs.host import CPU_OPTIMIZERS
from planner.specs.layout import OFFLOADED_OPTIMIZER
from planner.specs.plan import Plan
from planner.units import show


def on_cpu(e: Estimates, row: int) -> bool:
    """Whether the optimizer of a layout is updated on the CPU."""
    offloaded = e.table.layout(row).offload in OFFLOADED_OPTIMIZER
    return offloaded and e.plan.stack.offload_update == "cpu"


def assumed(e: Estimates, row: int) -> list[str]:
    """The host that updates, as a sentence: its memory, the threads and the software."""
    if not on_cpu(e, row):
        return []
    plan = e.plan
    host, how = plan.cluster.host, plan.training.cpu_optimizer or plan.stack.cpu_optimizer
    rate = show(float(cpu_rate(plan, machine(plan))), "count")
    return [
        f"host: {CPU_OPTIMIZERS[how].title} on {threads(plan)} of {host.cores} cores of"
        f" {host.title}, {show(host.memory_bandwidth, 'B/s')} of memory bandwidth: {rate}"
        " parameters/s per node (set --host, --host-threads, --cpu-optimizer)"
    ]


def without(e: Estimates, row: int) -> list[str]:
    """Step time with other numbers of host threads, if the request leaves them open, and without
    the CPU update."""
    plan = e.plan
    if not on_cpu(e, row) or plan.cluster.host_threads is not None:
        return []
    cores, ranks = plan.cluster.host.cores, plan.cluster.gpus_per_host
    each = max(cores // ranks, 1)
    said = [
        f"{show(_step_s(_with_threads(plan, n), e, row), 's')} with {n}"
        for n in dict.fromkeys((1, each))
    ]
    words = " and ".join(said)
    return [
        f"the threads that update on the host are assumed: a step takes {words} of each rank"
        f" (--host-threads), {show(_step_s(plan, e, row, updates=False), 's')} with an update in no"
        " time"
    ]


_NO_TIME = 1e30  # B/s


def _with_threads(plan: Plan, each: int) -> Plan:
    return plan.model_copy(
        update={"cluster": plan.cluster.model_copy(update={"host_threads": each})}
    )


def _step_s(plan: Plan, e: Estimates, row: int, updates: bool = True) -> float:
    m = machine(plan)
    if not updates:
        m = dataclasses.replace(m, host_update=_NO_TIME)
    table = Columns.of([e.table.layout(row)], plan.cluster.gpus)
    return float(evaluate(plan, table, numbers=m).time.seconds[0])
