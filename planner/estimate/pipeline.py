"""Work of pipeline stages per micro-batch, and the bubble of the schedule."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner import schedules
from planner.estimate import communicate
from planner.estimate.communicate import Traffic, place
from planner.estimate.machine import Machine
from planner.estimate.stages import slowest_inner, stage_split
from planner.formulas import pipeline
from planner.formulas.stages import contents, mtp_layers
from planner.ledger import Array, rowwise
from planner.schedules import timing
from planner.schedules.base import Work, total_s
from planner.specs.cluster import Tiers
from planner.specs.columns import Columns
from planner.specs.layers import timed_kinds
from planner.specs.layout import SCHEDULES
from planner.specs.plan import Plan

# micro-batches per rank after which one more only adds the slowest stage's time to a simulated
# schedule
_SETTLED = 3
_ENDS = 2  # stages that are the first or the last


@dataclass(frozen=True)
class Pieces:
    """Seconds of one micro-batch for the building blocks of a rank."""

    layer: tuple[Work, ...]  # one layer of every kind that differs in time
    mean: Work  # the mean layer of the model
    head: Work
    module: Work  # of multi-token prediction, its layer and its head apart

    def of(self, layers: Sequence[Array], heads: Array, modules: Array) -> Work:
        """Total work of these numbers of layers, heads and modules."""
        counts = [*layers, heads, modules]
        each = zip(*self.layer, self.head, self.module, strict=True)
        return Work(
            *(functools.reduce(np.add, map(np.multiply, counts, values)) for values in each)
        )


@dataclass(frozen=True)
class Stages:
    """Layers and seconds of one micro-batch on the first, a middle and the last rank, one value per
    row: the middle one is the slowest.

    With one rank only the last exists, with two no middle one.
    """

    number: tuple[Array, Array, Array]
    kinds: tuple[tuple[Array, ...], ...]  # layers of every kind that differs in time
    heads: tuple[Array, Array, Array]  # that the rank computes: its own, and of MTP layers
    modules: tuple[Array, Array, Array]  # of multi-token prediction
    work: tuple[Work, Work, Work]
    each: Pieces

    @property
    def layers(self) -> tuple[Array, Array, Array]:
        """Layers of every rank."""
        first, middle, last = (functools.reduce(np.add, each) for each in self.kinds)
        return first, middle, last

    def of_slowest(self, each: tuple[Array, Array, Array]) -> Array:
        """The value of the rank that sets the pace; of equals the last, then the first."""
        seconds = self.slowest_s()
        at_first, _, at_last = (total_s(work) >= seconds for work in self.work)
        return np.where(at_last, each[2], np.where(at_first, each[0], each[1]))

    def slowest_s(self) -> Array:
        """Seconds of the rank that sets the pace."""
        first, middle, last = (total_s(work) for work in self.work)
        return np.maximum(np.maximum(first, middle), last)

    def slowest(self) -> Work:
        """Work of the slowest rank; among equals of the last, then the first."""
        first, middle, last = self.work
        at_first, at_middle, at_last = (total_s(work) for work in self.work)
        is_last, is_first = at_last >= np.maximum(at_first, at_middle), at_first >= at_middle
        return Work(
            *(
                np.where(is_last, z, np.where(is_first, a, b))
                for a, b, z in zip(first, middle, last, strict=True)
            )
        )


def stages(plan: Plan, c: Columns, each: Pieces) -> Stages:
    """Layers and work of the ranks, given the seconds of their building blocks."""
    layer_s = [total_s(work) for work in each.layer]
    module_s = total_s(each.head) + total_s(each.module)
    inner = slowest_inner(plan, c, layer_s, module_s)
    number = 0.0 * c.pp, inner, c.pp - 1
    splits = [stage_split(plan, c, at, timed_kinds(plan.model)) for at in number]
    first, middle, last = (split.kinds for split in splits)
    several = c.pp > _ENDS
    middle = tuple(np.where(several, a, b) for a, b in zip(middle, first, strict=True))
    count = first, middle, last
    first, middle, last = (split.last + split.mtp for split in splits)
    heads = first, np.where(several, middle, 0.0), last
    first, middle, last = (split.mtp for split in splits)
    modules = first, np.where(several, middle, 0.0), last
    work = [each.of(*counts) for counts in zip(count, heads, modules, strict=True)]
    return Stages(number, count, heads, modules, (work[0], work[1], work[2]), each)


def idle_s(
    plan: Plan, c: Columns, ranks: Stages, microbatches: Array, simulated: bool = True
) -> Array:
    """Seconds per step in which the slowest rank waits: in closed form, or simulated where that
    holds for some durations only; 0 there if not simulated."""
    pp, vpp = c.pp, c.vpp
    slowest = ranks.slowest()
    counts, mtp = [float(n) for n in timed_kinds(plan.model).counts], mtp_layers(plan)
    for kind in timed_kinds(plan.model).module:
        counts[kind] += mtp
    every = ranks.each.of(counts, 1.0 + mtp, float(mtp))  # of all ranks together
    fill = Work(*(np.maximum(a - b, 0.0) for a, b in zip(every, slowest, strict=True)))
    out = schedules.idle_s(c.schedule, fill, slowest, np.maximum(pp, 1.0), microbatches, vpp)
    for code, name in enumerate(SCHEDULES):
        if schedules.is_simulated(name) and np.any(rows := (c.schedule == code) & (pp > 1)):
            if not simulated:
                out = np.where(rows, 0.0, out)
                continue
            each = ranks.each
            durations = [x for work in (*each.layer, each.head, each.module) for x in work]
            timed = rowwise(
                functools.partial(_simulated, plan, name),
                rows,
                pp,
                vpp,
                microbatches,
                total_s(slowest),
                *durations,
            )
            out = np.where(rows, timed, out)
    return np.where(pp > 1, out, 0.0)


class _Pipelines(NamedTuple):
    """Ranks, chunks per rank and micro-batches, per row."""

    pp: Array
    vpp: Array
    microbatches: Array


def _simulated(plan: Plan, name: str, rows: Array, *columns: Array) -> Array:
    """Idle seconds of the marked rows of one schedule: one pass for all rows that share ranks,
    chunks and micro-batches. columns: of the pipelines, the slowest rank's seconds, the work of a
    layer of every kind, the head's, a module's."""
    idle = np.zeros(len(rows))
    if np.any(rows):
        marked = [(column + np.zeros(len(rows)))[rows] for column in columns]
        pipelines, slowest_s = _Pipelines(*marked[:3]), marked[3]
        each = [Work(*marked[i : i + 3]) for i in range(4, len(marked), 3)]
        idle[rows] = _simulated_rows(plan, name, pipelines, slowest_s, each)
    return idle


def _simulated_rows(
    plan: Plan, name: str, pipelines: _Pipelines, slowest_s: Array, each: Sequence[Work]
) -> Array:
    pp, vpp, m = pipelines
    settled = _SETTLED * pp + np.mod(m - _SETTLED * pp, 2)
    m = np.where(m > settled, settled, m)
    out = np.zeros(len(pp))
    for p, v, count in {(int(a), int(b), int(n)) for a, b, n in zip(pp, vpp, m, strict=True)}:
        same = (pp == p) & (vpp == v) & (m == count)
        if not schedules.chunks_fit(name, v) or not schedules.runs(name, p, count, v):
            continue  # a rule refuses the row
        *layers, head, module = [Work(*(x[same] for x in work)) for work in each]
        pieces = Pieces(tuple(layers), layers[0], head, module)
        durations = timing.Durations(*chunk_seconds(plan, pieces, p, v))
        timed = timing.timed(schedules.program(name, p, count, v), durations)
        taken = timed.span if schedules.free_running(name) else timed.makespan
        out[same] = np.maximum(taken - count * slowest_s[same], 0.0)
    return out


def chunk_seconds(plan: Plan, each: Pieces, p: int, v: int) -> Work:
    """Forward, input and weight gradient of every chunk, in the order of the layers, shape (p v,
    rows)."""
    chunks = contents(plan, p, v, layers=timed_kinds(plan.model))
    modules = chunks.mtp.reshape(-1, 1)
    heads = modules.copy()
    heads[-1] += 1
    return each.of([kind.reshape(-1, 1) for kind in chunks.kinds], heads, modules)


def sends_overlap(plan: Plan, c: Columns) -> Array:
    """Whether stages compute while their messages are sent."""
    return plan.stack.overlap.pipeline_send & (c.vpp > 1) & (plan.training.overlap is not False)


def sends(plan: Plan, m: Machine, c: Columns, microbatches: Array, slowest: Work) -> Traffic:
    """Activations and their gradients between neighbouring stages; overlapped sends hide behind the
    work of chunks. slowest: of the rank that sets the pace, one micro-batch.

    Exposed are all sends of the fill and the drain, and in the steady state the sends of the rank
    with the most expensive neighbours, or the time that chunks wait for them: what the timed
    schedules show (tests/test_schedules_timing.py).
    """
    training, stack = plan.training, plan.stack
    activation = training.element_bytes * c.tokens(training.seq_len) * plan.model.hidden
    sequence = c.sequence_parallel > 0
    split = sequence | stack.overlap.scatter_gather
    message = activation / np.where(split, c.tp, 1.0)
    gathered = communicate.all_gather_s(
        m, activation, place(c.tp, np.ones_like(c.tp), plan.cluster.tiers)
    )
    joined = np.where(split & ~sequence & (c.tp > 1), gathered, 0.0)
    overlaps = sends_overlap(plan, c)
    interleaved = overlaps & ~c.is_schedule("breadth-first")
    chunk_s = total_s(slowest) / (2 * c.vpp)  # forward or backward of one chunk, on average
    issue_s = (
        m.operators_per_collective * m.operator_launch
    )  # the stage's queue waits while the CPU posts and joins a message
    # with chunks, one micro-batch crosses every boundary in turn before the steady state and after
    # it: nothing hides those
    rounds = np.where(interleaved, c.vpp, 1.0)
    crossing = _boundaries(c, plan.cluster.tiers)
    steady = c.vpp * np.maximum(microbatches - crossing.settled, 0.0)
    count: Array = 0.0
    seconds: Array = 0.0
    exposed: Array = 0.0
    around: Array = 0.0  # sends over all boundaries of the ring of ranks
    dearest: Array = 0.0
    links: list[tuple[float, Array | None, Array, Callable[[Array], Array]]] = [
        (0.0, None, crossing.near, crossing.filling_near),
        (1.0, None, crossing.far, crossing.filling_far),
    ]
    if crossing.islands is not None:
        links.append((1.0, np.asarray(True), crossing.out, crossing.filling_out))
    for across, between, neighbours, filled_in in links:
        filling = filled_in(rounds)
        beside = communicate.send_s(m, message, across, between) + joined
        beyond = np.where(interleaved, 0.0, np.maximum(beside - chunk_s, 0.0))
        waits = issue_s + np.where(overlaps, beyond, beside)
        # one round more crosses every boundary of the ring once more
        around = around + (filled_in(rounds + 1.0) - filling) * beside
        dearest = np.maximum(dearest, np.where(neighbours > 0, beside, 0.0))
        calls = np.where(c.pp > 1, steady * neighbours, 0.0)
        filled = np.where(c.pp > 1, 2 * filling, 0.0)
        count = count + calls + filled
        seconds = seconds + (calls + filled) * (beside + issue_s)
        exposed = exposed + calls * waits + filled * (beside + issue_s)
    forward = slowest.forward / c.vpp
    backward = (slowest.input_gradient + slowest.weight_gradient) / c.vpp
    stalled = np.maximum(
        pipeline.ring_stall_s(
            forward, backward, around / c.pp, stages=c.pp, chunks=c.vpp, microbatches=microbatches
        ),
        pipeline.pair_stall_s(forward, backward, dearest, c.vpp * microbatches),
    )
    exposed = exposed + np.where(interleaved & (c.pp > 1), stalled, 0.0)
    return Traffic(
        "send_recv",
        "pipeline",
        "activations",
        "pipeline_transfer",
        message,
        count,
        seconds,
        exposed,
        (crossing.domains > 1) * 1.0,
    )


@dataclass(frozen=True)
class _Boundaries:
    """Which boundaries between stages are links between nodes, or between NVLink domains, and which
    of these are links between islands."""

    pp: Array
    domains: Array  # that the stages of one pipeline lie on
    near: Array  # neighbours inside the domain, of the rank that sends most over its border
    far: Array  # in other domains of its island
    out: Array  # in other islands
    # micro-batches that pass before the schedule waits for the border: the stages behind the last
    # one work while the first micro-batch is there and comes back
    settled: Array
    islands: Array | None = None  # that they lie on; None where the fabric has none

    def filling_out(self, rounds: Array) -> Array:
        """Boundaries between islands that one micro-batch crosses on its way through all stages,
        `rounds` times around them."""
        if self.islands is None:
            return 0.0 * self.pp
        return np.where(self.islands > 1, rounds * self.islands - 1, 0.0)

    def filling_far(self, rounds: Array) -> Array:
        """Boundaries between domains of an island that it crosses."""
        crossed = np.where(self.domains > 1, rounds * self.domains - 1, 0.0)
        return crossed if self.islands is None else crossed - self.filling_out(rounds)

    def filling_near(self, rounds: Array) -> Array:
        """The other boundaries that it crosses."""
        return rounds * self.pp - 1 - self.filling_far(rounds) - self.filling_out(rounds)


def _boundaries(c: Columns, tiers: Tiers) -> _Boundaries:
    """Neighbouring stages are one stage's ranks apart, or with stages inside replicas one
    replica's; as many of them share a domain, or an island, as fit."""
    between = np.where(c.is_placement("tp-cp-pp-dp"), 1.0, c.dp)
    group = place(c.pp, c.tp * c.cp * between, tiers)
    together = group.ranks_per_node
    domains = np.ceil(c.pp / together)
    last = c.pp - (domains - 1) * together  # stages of the last domain
    # in a ring of chunks every rank has two neighbours, else the first and the last have one
    neighbours = np.where((c.pp > _ENDS) | (c.vpp > 1), 2.0, 1.0)
    alone = (together == 1) | ((last == 1) & (c.vpp > 1))
    far = np.where(domains > 1, np.where(alone, neighbours, 1.0), 0.0)
    settled = np.where(domains > 1, last, 1.0)
    per_island = group.ranks_per_island
    if per_island is None:
        return _Boundaries(c.pp, domains, neighbours - far, far, 0.0 * far, settled)
    # one stage per island: every neighbour is in another one
    islands = np.where(domains > 1, np.ceil(c.pp / per_island), 1.0)
    out = np.where(islands > 1, np.where(per_island == 1, far, 1.0), 0.0)
    return _Boundaries(c.pp, domains, neighbours - far, far - out, out, settled, islands)
