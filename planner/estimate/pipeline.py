"""What the stages of a pipeline do per micro-batch, and what its schedule leaves idle."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from planner import schedules
from planner.estimate import communicate
from planner.estimate.communicate import Traffic, place
from planner.estimate.factored import rowwise
from planner.estimate.machine import Machine
from planner.estimate.states import stage_split
from planner.ledger import Array
from planner.schedules import timing
from planner.schedules.base import Work, total_s
from planner.specs.columns import Columns
from planner.specs.layout import SCHEDULES
from planner.specs.plan import Plan

# micro-batches per rank after which one more only adds the slowest stage's time to a simulated
# schedule
_SETTLED = 3


@dataclass(frozen=True)
class Stages:
    """Layers and seconds of one micro-batch on the first, the middle and the last rank, one value
    per row.

    With one rank only the last exists, with two no middle one.
    """

    layers: tuple[Array, Array, Array]
    work: tuple[Work, Work, Work]

    def slowest_s(self) -> Array:
        """Seconds of the rank that sets the pace."""
        first, middle, last = (total_s(one) for one in self.work)
        return np.maximum(np.maximum(first, middle), last)


def stage_layers(plan: Plan, c: Columns) -> tuple[Array, Array, Array]:
    """Layers of the first, a middle and the last rank; of the middle ones the second, which has the
    most (states.stage_split)."""
    last = c.pp - 1
    first, second, at_end = (
        stage_split(plan, c.pp, c.vpp, stage).layers
        for stage in (0.0 * last, np.minimum(1.0, last), last)
    )
    return first, np.where(last > 1, second, first), at_end


def stages(plan: Plan, c: Columns, layer: Work, head: Work) -> Stages:
    """Layers and work of the ranks, given the seconds of one layer and of what the last rank
    computes besides layers."""
    count = stage_layers(plan, c)
    first, middle, last = (Work(*(n * part for part in layer)) for n in count)
    return Stages(count, (first, middle, Work(*(a + b for a, b in zip(last, head, strict=True)))))


def idle_s(c: Columns, ranks: Stages, microbatches: Array) -> Array:
    """Seconds per step in which the slowest rank waits: in closed form, or simulated where that
    holds for some durations only."""
    pp, vpp = c.pp, c.vpp
    first, middle, last = ranks.work
    all_stages = [
        a * (pp > 1) + np.maximum(pp - 2, 0.0) * b + z
        for a, b, z in zip(first, middle, last, strict=True)
    ]
    at_first, at_middle, at_last = (total_s(one) for one in ranks.work)
    is_last, is_first = at_last >= np.maximum(at_first, at_middle), at_first >= at_middle
    slowest = [
        np.where(is_last, z, np.where(is_first, a, b))
        for a, b, z in zip(first, middle, last, strict=True)
    ]
    fill = Work(*(np.maximum(a - b, 0.0) for a, b in zip(all_stages, slowest, strict=True)))
    out = schedules.idle_s(
        SCHEDULES, c.schedule, fill, Work(*slowest), np.maximum(pp, 1.0), microbatches, vpp
    )
    for code, name in enumerate(SCHEDULES):
        if getattr(schedules.BY_NAME[name], "SIMULATED", False) and np.any(
            rows := (c.schedule == code) & (pp > 1)
        ):
            durations = [part for one in ranks.work for part in one]
            timed = rowwise(
                functools.partial(_simulated, name), rows, pp, vpp, microbatches, *durations
            )
            out = np.where(rows, timed, out)
    return np.where(pp > 1, out, 0.0)


def _simulated(
    name: str, rows: Array, pp: Array, vpp: Array, microbatches: Array, *durations: Array
) -> Array:
    """Idle seconds of the marked rows of one schedule: one pass for all rows that share ranks,
    chunks and micro-batches."""
    idle = np.zeros(len(rows))
    if np.any(rows):
        parts = [(part + np.zeros(len(rows)))[rows] for part in durations]
        works = [Work(*parts[i : i + 3]) for i in (0, 3, 6)]
        idle[rows] = _simulated_rows(name, pp[rows], vpp[rows], microbatches[rows], works)
    return idle


def _simulated_rows(name: str, pp: Array, vpp: Array, m: Array, works: list[Work]) -> Array:
    settled = _SETTLED * pp + np.mod(m - _SETTLED * pp, 2)
    m = np.where(m > settled, settled, m)
    slowest = np.max([total_s(one) for one in works], axis=0)
    out = np.zeros(len(pp))
    for p, v, count in {(int(a), int(b), int(n)) for a, b, n in zip(pp, vpp, m, strict=True)}:
        same = (pp == p) & (vpp == v) & (m == count)
        if not schedules.chunks_fit(name, v) or not schedules.BY_NAME[name].allows(p, count, v):
            continue  # a rule refuses the row
        durations = timing.Durations(
            *chunk_seconds([Work(*(x[same] for x in one)) for one in works], p, v)
        )
        timed = timing.timed(schedules.program(name, p, count, v), durations)
        taken = timed.span if schedules.free_running(name) else timed.makespan
        out[same] = np.maximum(taken - count * slowest[same], 0.0)
    return out


def chunk_seconds(work: list[Work], p: int, v: int) -> tuple[Array, Array, Array]:
    """Forward, input and weight gradient of every chunk, shape (p v, rows): ranks hold v equal
    chunks, what the first and the last rank have less or more is in the first and the last
    chunk."""
    first, middle, last = work
    out = []
    for a, b, z in zip(first, middle, last, strict=True):
        chunks = np.repeat((b / v)[None, :], p * v, axis=0)
        chunks[0] = np.maximum(chunks[0] + a - b, 0.0)
        chunks[-1] = np.maximum(chunks[-1] + z - b, 0.0)
        out.append(chunks)
    return out[0], out[1], out[2]


def sends(plan: Plan, m: Machine, c: Columns, microbatches: Array, slowest_s: Array) -> Traffic:
    """Activations and their gradients between neighbouring stages; overlapped sends hide behind the
    work of one chunk.

    Exposed are 2 (v p - 1) of them in the fill and the drain, and in the steady state what is
    longer than a chunk's work: what the timed schedules show (tests/test_schedules.py).
    """
    training, stack = plan.training, plan.stack
    activation = training.element_bytes * c.tokens(training.seq_len) * plan.model.hidden
    sequence = c.sequence_parallel > 0
    split = sequence | stack.overlap.scatter_gather
    message = activation / np.where(split, c.tp, 1.0)
    # stages that are neighbours lie all ranks of a stage apart, or with stages inside replicas
    # those of one replica
    between = np.where(c.is_placement("tp-cp-pp-dp"), 1.0, c.dp)
    crossing = (c.tp * c.cp * between * c.pp > plan.cluster.nvlink_domain) * 1.0
    each = communicate.send_s(m, message, crossing)
    gathered = communicate.all_gather_s(
        m, activation, place(c.tp, np.ones_like(c.tp), plan.cluster.nvlink_domain)
    )
    each = each + np.where(split & ~sequence & (c.tp > 1), gathered, 0.0)
    overlaps = stack.overlap.pipeline_send & (c.vpp > 1) & (plan.training.overlap is not False)
    chunk_s = slowest_s / (2 * c.vpp)  # forward or backward of one chunk, on average
    issue_s = (
        m.operators_per_collective * m.operator_launch
    )  # the stage's queue waits while the CPU posts and joins a message
    each = each + issue_s
    steady_s = issue_s + np.where(
        overlaps, np.maximum(each - issue_s - chunk_s, 0.0), each - issue_s
    )
    several = c.pp > 1
    steady = np.where(several, 2 * c.vpp * microbatches, 0.0)
    # with chunks, one micro-batch crosses every boundary in turn before the steady state and after
    # it: nothing hides those
    boundaries = np.where(overlaps & (~c.is_schedule("breadth-first")), c.vpp * c.pp, c.pp) - 1
    filling = np.where(several, 2 * boundaries, 0.0)
    return Traffic(
        "send_recv",
        "pipeline",
        "activations",
        "pipeline_transfer",
        message,
        steady + filling,
        (steady + filling) * each,
        steady * steady_s + filling * each,
        crossing,
    )
