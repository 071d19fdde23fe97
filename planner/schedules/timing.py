"""The pass that times a schedule: actions and durations in, start and end of every action out.

Durations may be arrays, one value per row: one pass then times all rows. Actions are sorted once
into levels that wait only for earlier levels; a level is a handful of numpy operations however many
rows there are.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from planner.error import PlanError
from planner.ledger import Array
from planner.schedules.base import BACKWARD, FORWARD, INPUT, OVERLAP, WEIGHT, Action, Actions
from planner.schedules.lists import CODE, NAMES, Lists

_BLOCK = 512  # rows timed together: the ends of 3,000 actions then stay in a cache of megabytes
_NOTHING = 0  # node that ends at time zero: what an action waits for that waits for nothing


@dataclass(frozen=True)
class Durations:
    """Seconds. Per stage: a number, (stages,) or (stages, rows); per rank likewise with ranks.

    A whole backward takes input_gradient + weight_gradient; recompute belongs to input_gradient,
    embedding and head to the first and the last stage.
    """

    forward: Array = 1.0
    input_gradient: Array = 1.0
    weight_gradient: Array = 1.0
    # between ranks: a number, or (stages - 1,) or (stages - 1, rows) for what crosses from stage i
    # to i + 1
    send: Array = 0.0
    slowdown: Array = 1.0  # per rank: a straggler computes longer
    tail: Array = 0.0  # per rank: what follows its last action, such as the optimizer
    pair_frac: Array = 1.0  # an overlapped forward and backward over the sum of the two
    blocking: bool = False  # a rank waits until its send is out, instead of computing beside it


@dataclass(frozen=True)
class Program:
    """A schedule with its dependencies resolved; node 0 is nothing, the others are sorted by
    level."""

    ranks: int
    stages: int
    microbatches: int
    lists: Lists
    place: Array  # (nodes,) position of each node in the lists, from 1
    rank: Array  # (nodes,) of each node; -1 for node 0
    before: Array  # previous node of the same rank
    # (2, nodes): nodes of other stages whose result is needed; the second only for overlapped pairs
    waits: Array
    # (2, nodes): row of the table of delays: 0 for none, i + 1 for the boundary after stage i
    lag: Array
    takes: Array  # row of the table of durations
    kinds: tuple[
        tuple[str, int, int, int], ...
    ]  # rows of the table of durations: (kind, stage, stage of the pair, rank)
    sends: Array  # (2, nodes): row of the table of delays of what the node sends
    levels: tuple[int, ...]  # nodes levels[i] .. levels[i + 1] wait only for earlier ones
    pairs: bool
    first: Array = field(repr=False)  # (ranks,) node
    last: Array = field(repr=False)

    def __len__(self) -> int:
        """Actions."""
        return len(self.before) - 1

    @functools.cached_property
    def actions(self) -> tuple[Action, ...]:
        """Actions of node i + 1."""
        flat = self.lists.flat()
        return tuple(flat[i - 1] for i in self.place[1:].tolist())


@dataclass(frozen=True)
class Timing:
    """Seconds, one value per row (a scalar's place where durations were plain numbers). Shapes
    (rows,) and (ranks, rows)."""

    makespan: Array  # from the first start to the last end
    start: Array  # of the first action of each rank
    end: Array  # of the last one, with what follows it
    program: Program
    durations: Durations
    # (nodes, rows) of the computing, without the send that may follow, when kept
    ends: Array | None = None
    takes: Array | None = None

    @functools.cached_property
    def busy(self) -> Array:
        """Seconds in which each rank computes; a search of layouts does not ask for them."""
        rows = self.start.shape[1]
        takes, _ = _tables(self.program, self.durations, slice(0, rows))
        return _busy(self.program, takes, rows)

    @property
    def span(self) -> Array:
        """Longest stay of any rank: the step time where no rank waits for all others before it
        starts the next step."""
        return (self.end - self.start).max(axis=0)


def compiled(actions: Actions | Lists) -> Program:
    """Resolve dependencies and sort into levels. Raises PlanError where a list lacks what another
    needs, Deadlock."""
    leaf = actions if isinstance(actions, Lists) else Lists.of(actions)
    ranks, count = len(leaf.counts), int(leaf.counts.sum()) + 1
    if count == 1:
        raise PlanError("schedule", "", "holds no action")
    rank = np.concatenate([[-1], np.repeat(np.arange(ranks), leaf.counts)])
    stages, microbatches = int(leaf.stage.max()) + 1, int(leaf.microbatch.max()) + 1
    if stages * microbatches > len(leaf.node):
        raise PlanError(
            "schedule",
            str(leaf.action(1)),
            f"{len(leaf.node)} actions are too few for {stages} stages and {microbatches} "
            "micro-batches",
        )
    size = stages * microbatches
    place = leaf.stage * microbatches + leaf.microbatch
    key = _WORD[leaf.kind] * size + place
    if (np.bincount(key) > 1).any():
        again = leaf.action(int(leaf.node[np.flatnonzero(np.bincount(key)[key] > 1)[-1]]))
        raise PlanError("schedule", str(again), f"{again} runs twice")
    where = np.zeros(3 * size, dtype=np.intp)
    where[key] = leaf.node

    forward, weight = (leaf.kind == CODE[name] for name in (FORWARD, WEIGHT))
    at_end = ~forward & ~weight & (leaf.stage == stages - 1)
    needs_any = ~(forward & (leaf.stage == 0))
    needed = np.where(
        forward, place - microbatches, np.where(weight, size + place, size + place + microbatches)
    )
    needed = np.where(at_end, place, needed)
    needs = np.where(needs_any, where[np.where(needs_any, needed, 0)], _NOTHING)
    if (lacking := needs_any & (needs == _NOTHING)).any():
        first = int(np.flatnonzero(lacking)[0])
        word = "FB"[int(needed[first]) // size]
        stage, i = divmod(int(needed[first]) % size, microbatches)
        lacks = leaf.action(int(leaf.node[first]))
        raise PlanError(
            "schedule", str(lacks), f"{lacks} needs {stage}{word}{i}, which no rank runs"
        )
    boundary = np.where(
        forward, leaf.stage - 1, leaf.stage
    )  # between which stages what is needed comes from
    behind = np.where(needs_any & ~weight & (rank[needs] != rank[leaf.node]), boundary + 1, 0)
    onward = np.where(forward, leaf.stage < stages - 1, ~weight & (leaf.stage > 0))
    to = where[
        np.where(onward, np.where(forward, place + microbatches, size + place - microbatches), 0)
    ]
    out = np.where(
        onward & (to > 0) & (rank[to] != rank[leaf.node]),
        np.where(forward, leaf.stage, leaf.stage - 1) + 1,
        0,
    )

    waits, lag, sends = (np.zeros((2, count), dtype=np.intp) for _ in range(3))
    for table, values in ((waits, needs), (lag, behind), (sends, out)):
        table[leaf.slot, leaf.node] = values
    edges = np.concatenate([[0], np.cumsum(leaf.counts)])
    before = np.arange(-1, count - 1)
    before[edges[:-1][np.diff(edges) > 0] + 1] = _NOTHING
    before[0] = _NOTHING

    pairs = leaf.pairs
    shown = np.zeros((2, count), dtype=np.intp)
    shown[leaf.slot, leaf.node] = leaf.stage
    kind = np.zeros(count, dtype=np.intp)
    kind[leaf.node] = leaf.kind
    kind[1:][pairs] = CODE[OVERLAP]
    combined = (
        (kind * stages + shown[0]) * stages + np.where(kind == CODE[OVERLAP], shown[1], shown[0])
    ) * ranks + rank
    distinct, takes = np.unique(combined[1:], return_inverse=True)
    takes = np.concatenate([[0], takes])

    order, levels = _levels(before, waits, edges)
    back = np.empty(count, dtype=np.intp)
    back[order] = np.arange(count)
    some = np.diff(edges) > 0
    return Program(
        ranks=ranks,
        stages=stages,
        microbatches=microbatches,
        lists=leaf,
        place=order,
        rank=rank[order],
        before=back[before[order]],
        waits=back[waits[:, order]],
        lag=lag[:, order],
        takes=takes[order],
        kinds=tuple(_kind(int(code), stages, ranks) for code in distinct),
        sends=sends[:, order],
        levels=tuple(levels),
        pairs=bool(pairs.any()),
        first=back[np.where(some, edges[:-1] + 1, 0)],
        last=back[np.where(some, edges[1:], 0)],
    )


_WORD = np.array(
    [0, 1, 1, 2]
)  # what others wait for: a forward, a whole backward or its input gradient; a weight gradient


def _kind(combined: int, stages: int, ranks: int) -> tuple[str, int, int, int]:
    """(kind, stage, stage of the pair, rank) of a row of the table of durations."""
    rest, rank = divmod(combined, ranks)
    rest, other = divmod(rest, stages)
    kind, stage = divmod(rest, stages)
    return NAMES[kind], stage, other, rank


def _levels(before: Array, waits: Array, edges: Array) -> tuple[Array, list[int]]:
    """(nodes sorted by level, where each level starts): each level runs the next action of every
    rank that waits for nothing."""
    count = len(before)
    done = np.zeros(count, dtype=bool)
    done[_NOTHING] = True
    at, end = edges[:-1] + 1, edges[1:] + 1
    order, starts = [np.zeros(1, dtype=np.intp)], [1]
    left = count - 1
    first, second, several = waits[0], waits[1], bool(waits[1].any())
    busy = at < end
    at, end = at[busy], end[busy]
    while left:
        ready = done[first[at]]
        if several:
            ready &= done[second[at]]
        now = at[ready]
        if not len(now):
            raise Deadlock([int(node) for node in np.flatnonzero(~done)])
        done[now] = True
        order.append(now)
        left -= len(now)
        starts.append(count - left)
        at = at + ready
        if (at[ready] == end[ready]).any():
            busy = at < end
            at, end = at[busy], end[busy]
    return np.concatenate(order), starts


class Deadlock(Exception):
    """The lists wait for each other; `nodes` number the actions that never start, in the order of
    the lists."""

    def __init__(self, nodes: list[int]) -> None:
        super().__init__("the schedule waits for itself")
        self.nodes = nodes


def timed(program: Program, d: Durations, keep: bool = False) -> Timing:
    """Time every action: it starts when its rank is free and what it needs has arrived.

    keep: also return the end and the duration of every node; otherwise rows are timed in blocks and
    only ranks are kept.
    """
    rows = _rows(program, d)
    block = rows if keep else _BLOCK
    shape = (program.ranks, rows)
    start, end = np.empty(shape), np.empty(shape)
    ends = takes = lags = None
    for at in range(0, rows, block):
        part = slice(at, min(at + block, rows))
        ends, takes, lags = _block(program, d, part, part.stop - at)
        start[:, part] = ends[program.first] - takes[program.takes[program.first]]
        if d.blocking:
            start[:, part] -= lags[program.sends[:, program.first]].sum(axis=0)
        start[:, part] = np.where((program.first == 0)[:, None], 0.0, start[:, part])
        end[:, part] = ends[program.last] + _spread(d.tail, program.ranks, part)
    makespan = end.max(axis=0) - start.min(axis=0)
    if keep and ends is not None and takes is not None and lags is not None:
        ends = ends - lags[program.sends].sum(axis=0) if d.blocking else ends
        return Timing(makespan, start, end, program, d, ends, takes[program.takes])
    return Timing(makespan, start, end, program, d)


def _rows(program: Program, d: Durations) -> int:
    """Rows of the durations; PlanError where shapes do not fit."""
    rows = 1
    per = {
        "forward": program.stages,
        "input_gradient": program.stages,
        "weight_gradient": program.stages,
        "send": program.stages - 1,
        "slowdown": program.ranks,
        "tail": program.ranks,
        "pair_frac": 1,
    }
    for name, count in per.items():
        given = getattr(d, name)
        if isinstance(given, float) and 0 <= given < np.inf:  # as most are
            continue
        value = np.asarray(given, dtype=float)
        if value.ndim and value.shape[0] not in (1, count):
            raise PlanError(
                name, value.shape, f"must be one number or one per stage or rank, {count} here"
            )
        if value.ndim > 2 or not np.all(np.isfinite(value)) or np.any(value < 0):
            raise PlanError(
                name, given, "must be finite, not negative, of shape (stages,) or (stages, rows)"
            )
        if value.ndim == 2 and value.shape[1] != 1:
            if rows not in (1, value.shape[1]):
                raise PlanError(
                    name, value.shape, f"has {value.shape[1]} rows where others have {rows}"
                )
            rows = value.shape[1]
    return rows


def _spread(value: Array, count: int, part: slice) -> Array:
    """(count, rows of the part) of a number, (count,) or (count, rows)."""
    array = np.asarray(value, dtype=float)
    if array.ndim < 2:
        array = array.reshape(-1, 1)
    return np.broadcast_to(
        array[:, part] if array.shape[1] > 1 else array, (count, part.stop - part.start)
    )


def _tables(program: Program, d: Durations, part: slice) -> tuple[Array, Array]:
    """(durations by row of `kinds`, delays by boundary after a row of zeros)."""
    stages = program.stages
    forward, given, weight = (
        _spread(x, stages, part) for x in (d.forward, d.input_gradient, d.weight_gradient)
    )
    whole = given + weight
    slow = _spread(d.slowdown, program.ranks, part)
    pair = _spread(d.pair_frac, 1, part)[0]
    table = {FORWARD: forward, BACKWARD: whole, INPUT: given, WEIGHT: weight}
    takes = np.stack(
        [
            slow[rank]
            * (pair * (forward[stage] + whole[other]) if kind == OVERLAP else table[kind][stage])
            for kind, stage, other, rank in program.kinds
        ]
    )
    send = _spread(d.send, max(stages - 1, 1), part)
    lags = np.concatenate([np.zeros((1, send.shape[1])), send])
    return takes, lags


def _block(program: Program, d: Durations, part: slice, rows: int) -> tuple[Array, Array, Array]:
    """(ends of all nodes, blocking sends included, table of durations, table of delays) for a part
    of the rows."""
    takes, lags = _tables(program, d, part)
    ends = np.zeros((len(program.before), rows))
    delayed = bool(program.lag.any()) and bool(np.any(lags))
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
            now += lags.take(program.sends[0, a:b], axis=0) + lags.take(
                program.sends[1, a:b], axis=0
            )
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
