"""GPU memory beside the tensors of a step: allocator gaps, context, communicators."""

from __future__ import annotations

import functools

import numpy as np

from planner.estimate.memory.graphs import graph_bytes
from planner.estimate.memory.phases import PHASES
from planner.estimate.memory.timeline import LASTING
from planner.formulas import memory
from planner.ledger import Array, Ledger, total
from planner.specs.columns import Columns
from planner.specs.plan import Plan

_COMMUNICATOR_BYTES = (
    0.15 * 2**30
)  # NCCL channels and buffers of one communicator, assumed (16 channels x 4 MiB and proxies)
# communicators of a rank beside the one of all ranks; a pipeline stage has one with each neighbour
_COMMUNICATORS = {"tp": 1, "pp": 2, "dp": 1, "cp": 1, "ep": 1}
_PASSES = ("forward", "loss", "backward")


def outside(plan: Plan, c: Columns) -> tuple[Array, Array]:
    """(context, communicators): bytes that the allocator does not see."""
    several = (c.gpus > 1) * 1.0
    groups = several + sum(
        (getattr(c, name) > 1) * float(times) for name, times in _COMMUNICATORS.items()
    )
    context = float(plan.cluster.gpu.context_memory) + graph_bytes(plan, c)
    return context + 0.0 * groups, groups * _COMMUNICATOR_BYTES


def reserved_of(phases: list[Ledger], segments: Array, *slacks: float) -> list[Array]:
    """Reserved memory after all phases, for each of these shares of slack: segments of flat buffers
    of the step stay beside segments of the passes."""
    by_slack: list[list[Array]] = [[] for _ in slacks]
    for name, phase in zip(PHASES, phases, strict=True):
        lasting = total({leaf: phase[leaf] for leaf in LASTING if leaf in phase})
        passing = total({leaf: value for leaf, value in phase.items() if leaf not in LASTING})
        besides = segments if name in _PASSES else 0.0
        for slack, totals in zip(slacks, by_slack, strict=True):
            totals.append(memory.reserved_bytes(lasting, passing, slack) + besides)
    return [functools.reduce(np.maximum, totals) for totals in by_slack]
