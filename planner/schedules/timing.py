"""The pass that times a schedule: actions and durations in, start and end of every action out.

Durations may be arrays, one value per row: one pass then times all rows. Actions are sorted once into levels that wait only for
earlier levels; a level is a handful of numpy operations however many rows there are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from planner.ledger import Array
from planner.schedules.base import BACKWARD, FORWARD, INPUT, OVERLAP, WEIGHT, Action, Actions
from planner.specs.base import PlanError

_BLOCK = 512  # rows timed together: the ends of 3,000 actions then stay in a cache of megabytes
_NOTHING = 0  # node that ends at time zero: what an action waits for that waits for nothing


@dataclass(frozen=True)
class Durations:
    """Seconds. Per stage: a number, (stages,) or (stages, rows); per rank likewise with ranks.

    A whole backward takes input_gradient + weight_gradient; recompute belongs to input_gradient, embedding and head to the first
    and the last stage.
    """

    forward: Array = 1.0
    input_gradient: Array = 1.0
    weight_gradient: Array = 1.0
    send: Array = 0.0  # between ranks: a number, or (stages - 1,) or (stages - 1, rows) for what crosses from stage i to i + 1
    slowdown: Array = 1.0  # per rank: a straggler computes longer
    tail: Array = 0.0  # per rank: what follows its last action, such as the optimizer
    pair_frac: Array = 1.0  # an overlapped forward and backward over the sum of the two
    blocking: bool = False  # a rank waits until its send is out, instead of computing beside it


@dataclass(frozen=True)
class Program:
    """A schedule with its dependencies resolved; node 0 is nothing, the others are sorted by level."""

    ranks: int
    stages: int
    microbatches: int
    actions: tuple[Action, ...]  # of node i + 1
    rank: Array  # (nodes,) of each node; -1 for node 0
    before: Array  # previous node of the same rank
    waits: Array  # (2, nodes): nodes of other stages whose result is needed; the second only for overlapped pairs
    lag: Array  # (2, nodes): row of the table of delays, 0 for none
    takes: Array  # row of the table of durations
    kinds: tuple[tuple[str, int, int, int], ...]  # rows of the table of durations: (kind, stage, stage of the pair, rank)
    crossings: tuple[int, ...]  # rows of the table of delays after the first: the lower stage of the boundary crossed
    sends: Array  # (2, nodes): row of the table of delays of what the node sends
    levels: tuple[int, ...]  # nodes levels[i] .. levels[i + 1] wait only for earlier ones
    pairs: bool
    first: Array = field(repr=False)  # (ranks,) node
    last: Array = field(repr=False)


@dataclass(frozen=True)
class Timing:
    """Seconds, one value per row (a scalar's place where durations were plain numbers). Shapes (rows,) and (ranks, rows)."""

    makespan: Array  # from the first start to the last end
    start: Array  # of the first action of each rank
    end: Array  # of the last one, with what follows it
    busy: Array
    ends: Array | None  # (nodes, rows) of the computing, without the send that may follow, when kept
    takes: Array | None

    @property
    def span(self) -> Array:
        """Longest stay of any rank: the step time where no rank waits for all others before it starts the next step."""
        return (self.end - self.start).max(axis=0)


def compiled(actions: Actions) -> Program:
    """Resolve dependencies and sort into levels. Raises PlanError where a list lacks what another needs, Deadlock."""
    nodes: list[Action] = [action for row in actions for action in row]
    where = {}
    node = 0
    for row in actions:
        for action in row:
            node += 1
            for a in action.parts or (action,):
                key = (a.kind if a.kind != INPUT else BACKWARD, a.stage, a.microbatch)
                if key in where:
                    raise PlanError("schedule", str(a), f"{a} runs twice")
                where[key] = node
    if not nodes:
        raise PlanError("schedule", actions, "holds no action")
    stages = 1 + max(stage for _, stage, _ in where)
    microbatches = 1 + max(i for _, _, i in where)
    ranks = np.repeat(np.arange(len(actions)), [len(row) for row in actions])
    rank_of, before, waits, lag, takes, sends = [-1, *ranks.tolist()], [0], ([0], [0]), ([0], [0]), [0], ([0], [0])
    kinds: dict[tuple[str, int, int, int], int] = {}
    crossings: dict[int, int] = {}
    node = 0
    for rank, row in enumerate(actions):
        previous = _NOTHING
        for action in row:
            node += 1
            before.append(previous)
            previous = node
            parts = action.parts or (action,)
            for slot in (0, 1):
                needs, behind, out = _NOTHING, 0, 0
                if slot < len(parts):
                    needs, behind, out = _needs(parts[slot], where, rank_of, rank, stages, crossings)
                waits[slot].append(needs)
                lag[slot].append(behind)
                sends[slot].append(out)
            kind = (action.kind, parts[0].stage, parts[-1].stage, rank)
            takes.append(kinds.setdefault(kind, len(kinds)))
    order, levels = _levels(before, waits)
    back = np.empty(node + 1, dtype=np.intp)
    back[order] = np.arange(node + 1)

    def sorted_nodes(numbers: list[int]) -> Array:
        return back[np.array(numbers, dtype=np.intp)[order]]

    edges = np.cumsum([0, *(len(row) for row in actions)])
    return Program(
        ranks=len(actions), stages=stages, microbatches=microbatches,
        actions=tuple(nodes[i - 1] for i in order[1:]), rank=np.array(rank_of)[order], before=sorted_nodes(before),
        waits=np.stack([sorted_nodes(one) for one in waits]),
        lag=np.stack([np.array(one, dtype=np.intp)[order] for one in lag]),
        takes=np.array(takes, dtype=np.intp)[order], kinds=tuple(kinds), crossings=tuple(crossings),
        sends=np.stack([np.array(one, dtype=np.intp)[order] for one in sends]), levels=tuple(levels),
        pairs=any(one.parts for one in nodes),
        first=back[[a + 1 if b > a else 0 for a, b in itertools.pairwise(edges)]],
        last=back[[b if b > a else 0 for a, b in itertools.pairwise(edges)]],
    )  # fmt: skip


def _needs(
    a: Action, where: dict[tuple[str, int, int], int], rank_of: list[int], rank: int, stages: int, crossings: dict[int, int]
) -> tuple[int, int, int]:
    """(node whose result the action needs, row of its delay, row of the delay of what the action sends)."""
    if a.kind == WEIGHT:
        return _found(a, (BACKWARD, a.stage, a.microbatch), where), 0, 0
    step = 1 if a.kind == FORWARD else -1
    word = FORWARD if a.kind == FORWARD else BACKWARD
    if 0 <= a.stage - step < stages:
        needs = _found(a, (word, a.stage - step, a.microbatch), where)
    else:
        needs = _NOTHING if step == 1 else _found(a, (FORWARD, a.stage, a.microbatch), where)
    behind = out = 0
    if needs and rank_of[needs] != rank:
        behind = crossings.setdefault(min(a.stage, a.stage - step), len(crossings)) + 1
    to = where.get((word, a.stage + step, a.microbatch), _NOTHING)
    if to and rank_of[to] != rank:
        out = crossings.setdefault(min(a.stage, a.stage + step), len(crossings)) + 1
    return needs, behind, out


def _found(a: Action, key: tuple[str, int, int], where: dict[tuple[str, int, int], int]) -> int:
    node = where.get(key)
    if node is None:
        raise PlanError("schedule", str(a), f"{a} needs {Action(key[1], key[0], key[2])}, which no rank runs")
    return node


def _levels(before: list[int], waits: tuple[list[int], list[int]]) -> tuple[Array, list[int]]:
    """(nodes sorted by level, where each level starts). Raises PlanError where the lists wait for each other."""
    count = len(before)
    after: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for node in range(1, count):
        for needed in {before[node], waits[0][node], waits[1][node]} - {_NOTHING}:
            after[needed].append(node)
            missing[node] += 1
    ready = [node for node in range(1, count) if not missing[node]]
    order, starts = [_NOTHING], [1]
    while ready:
        order += ready
        starts.append(len(order))
        following = []
        for node in ready:
            for other in after[node]:
                missing[other] -= 1
                if not missing[other]:
                    following.append(other)
        ready = following
    if len(order) < count:
        raise Deadlock([node for node in range(1, count) if missing[node]])
    return np.array(order, dtype=np.intp), starts


class Deadlock(Exception):
    """The lists wait for each other; `nodes` number the actions that never start, in the order of the lists."""

    def __init__(self, nodes: list[int]) -> None:
        super().__init__("the schedule waits for itself")
        self.nodes = nodes


# ------------------------------------------------------------------------------------------------------- timing


def timed(program: Program, d: Durations, keep: bool = False) -> Timing:
    """Time every action: it starts when its rank is free and what it needs has arrived.

    keep: also return the end and the duration of every node; otherwise rows are timed in blocks and only ranks are kept.
    """
    rows = _rows(program, d)
    block = rows if keep else _BLOCK
    shape = (program.ranks, rows)
    start, end, busy = np.empty(shape), np.empty(shape), np.empty(shape)
    ends = takes = lags = None
    for at in range(0, rows, block):
        part = slice(at, min(at + block, rows))
        ends, takes, lags = _block(program, d, part, part.stop - at)
        start[:, part] = ends[program.first] - takes[program.takes[program.first]]
        if d.blocking:
            start[:, part] -= lags[program.sends[:, program.first]].sum(axis=0)
        start[:, part] = np.where((program.first == 0)[:, None], 0.0, start[:, part])
        end[:, part] = ends[program.last] + _spread(d.tail, program.ranks, part)
        busy[:, part] = _busy(program, takes, part.stop - at)
    if keep and ends is not None and takes is not None and lags is not None:
        ends = ends - lags[program.sends].sum(axis=0) if d.blocking else ends
        return Timing(end.max(axis=0) - start.min(axis=0), start, end, busy, ends, takes[program.takes])
    return Timing(end.max(axis=0) - start.min(axis=0), start, end, busy, None, None)


def _rows(program: Program, d: Durations) -> int:
    """Rows of the durations; PlanError where shapes do not fit."""
    rows = 1
    per = {"forward": program.stages, "input_gradient": program.stages, "weight_gradient": program.stages,
           "send": program.stages - 1, "slowdown": program.ranks, "tail": program.ranks, "pair_frac": 1}  # fmt: skip
    for name, count in per.items():
        value = np.asarray(getattr(d, name), dtype=float)
        if value.ndim and value.shape[0] not in (1, count):
            raise PlanError(name, value.shape, f"must be one number or one per stage or rank, {count} here")
        if value.ndim > 2 or not np.all(np.isfinite(value)) or np.any(value < 0):
            raise PlanError(name, getattr(d, name), "must be finite, not negative, of shape (stages,) or (stages, rows)")
        if value.ndim == 2 and value.shape[1] != 1:
            if rows not in (1, value.shape[1]):
                raise PlanError(name, value.shape, f"has {value.shape[1]} rows where others have {rows}")
            rows = value.shape[1]
    return rows


def _spread(value: Array, count: int, part: slice) -> Array:
    """(count, rows of the part) of a number, (count,) or (count, rows)."""
    array = np.asarray(value, dtype=float)
    if array.ndim < 2:
        array = array.reshape(-1, 1)
    return np.broadcast_to(array[:, part] if array.shape[1] > 1 else array, (count, part.stop - part.start))


def _tables(program: Program, d: Durations, part: slice) -> tuple[Array, Array]:
    """(durations by row of `kinds`, delays by row of `crossings` after a row of zeros)."""
    stages = program.stages
    forward, given, weight = (_spread(x, stages, part) for x in (d.forward, d.input_gradient, d.weight_gradient))
    whole = given + weight
    slow = _spread(d.slowdown, program.ranks, part)
    pair = _spread(d.pair_frac, 1, part)[0]
    table = {FORWARD: forward, BACKWARD: whole, INPUT: given, WEIGHT: weight}
    takes = np.stack([
        slow[rank] * (pair * (forward[stage] + whole[other]) if kind == OVERLAP else table[kind][stage])
        for kind, stage, other, rank in program.kinds
    ])  # fmt: skip
    send = _spread(d.send, max(stages - 1, 1), part)
    lags = np.stack([0.0 * slow[0], *(send[stage] for stage in program.crossings)])
    return takes, lags


def _block(program: Program, d: Durations, part: slice, rows: int) -> tuple[Array, Array, Array]:
    """(ends of all nodes, blocking sends included, table of durations, table of delays) for a part of the rows."""
    takes, lags = _tables(program, d, part)
    ends = np.zeros((len(program.before), rows))
    delayed = bool(program.crossings) and bool(np.any(lags))
    hold, wait = delayed and d.blocking, delayed and not d.blocking
    for a, b in itertools.pairwise(program.levels):
        arrives = ends.take(program.waits[0, a:b], axis=0)
        if wait:
            arrives += lags.take(program.lag[0, a:b], axis=0)
        now = ends.take(program.before[a:b], axis=0)
        np.maximum(now, arrives, out=now)
        if program.pairs:
            arrives = ends.take(program.waits[1, a:b], axis=0)
            if wait:
                arrives += lags.take(program.lag[1, a:b], axis=0)
            np.maximum(now, arrives, out=now)
        now += takes.take(program.takes[a:b], axis=0)
        if hold:
            now += lags.take(program.sends[0, a:b], axis=0) + lags.take(program.sends[1, a:b], axis=0)
        ends[a:b] = now
    return ends, takes, lags


def _busy(program: Program, takes: Array, rows: int) -> Array:
    """Seconds each rank computes: every row of the table of durations times how often it occurs."""
    counts = np.bincount(program.takes[1:], minlength=len(program.kinds))
    out = np.zeros((program.ranks, rows))
    for (_, _, _, rank), count, seconds in zip(program.kinds, counts, takes, strict=True):
        out[rank] += count * seconds
    return out


def order_of(program: Program) -> Iterator[tuple[int, int, Action]]:
    """(node, rank, action) of every node."""
    for node, action in enumerate(program.actions, 1):
        yield node, int(program.rank[node]), action
