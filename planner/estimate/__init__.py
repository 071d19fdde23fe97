"""The only composition: a plan and a table of layouts become memory, time and rules, one value per layout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate.machine import Machine
from planner.estimate.memory import Memory, peak_memory
from planner.estimate.step import StepTime, step_time
from planner.estimate.table import Table
from planner.ledger import Array, section
from planner.specs.plan import Plan

__all__ = ["Estimates", "evaluate", "fit"]


@dataclass(frozen=True)
class Estimates:
    """Answers for every row of a table."""

    plan: Plan
    table: Table
    time: StepTime
    memory: Memory
    fits: Array  # bool
    host_fits: Array  # bool: what is offloaded fits the host memory, where its size is known


def evaluate(plan: Plan, table: Table, stages: Array | None = None, numbers: Machine | None = None) -> Estimates:
    """Estimate every layout of the table.

    stages: pipeline stages to look at for memory, shape (stages, rows); by default those that can be the worst.
    numbers: replaces the machine of the plan, for sensitivities and ablations.
    """
    with section("step time"):
        time = step_time(plan, table, numbers)
    with section("memory"):
        memory = peak_memory(plan, table, stages)
    return Estimates(plan, table, time, memory, *fit(plan, memory))


def fit(plan: Plan, memory: Memory) -> tuple[Array, Array]:
    """(the layout fits, what it offloads fits the host memory where its size is known), one value per layout."""
    usable = float(plan.cluster.gpu.usable_memory)
    host = plan.cluster.host_memory
    per_gpu = float(host) / min(plan.cluster.gpus_per_node, plan.cluster.gpus) if host is not None else np.inf
    host_fits = memory.host <= per_gpu
    return (memory.device <= usable) & host_fits, host_fits
