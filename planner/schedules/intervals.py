"""A timed schedule as intervals: which rank runs what from when to when, and the messages between
them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from planner.schedules.base import BACKWARD, FORWARD, INPUT, WEIGHT
from planner.schedules.timing import Program, Timing

KINDS = {
    FORWARD: "forward",
    BACKWARD: "backward",
    INPUT: "input gradient",
    WEIGHT: "weight gradient",
}


@dataclass(frozen=True)
class Interval:
    """One action on one rank, in seconds; the halves of an overlapped pair share its time in
    turn."""

    rank: int
    stage: int
    kind: str
    microbatch: int
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def intervals(program: Program, timing: Timing, row: int = 0) -> Iterator[Interval]:
    """Every action with its time, from a timing that kept its ends."""
    if timing.ends is None or timing.takes is None:
        raise ValueError("time the schedule with keep=True")
    ends, takes = timing.ends[:, row].tolist(), timing.takes[:, row].tolist()
    for node, action in enumerate(program.actions, 1):
        start, rank = ends[node] - takes[node], int(program.rank[node])
        parts = action.parts or (action,)
        each = takes[node] / len(parts)
        for i, part in enumerate(parts):
            at = start + i * each
            end = start + (i + 1) * each
            yield Interval(rank, part.stage, part.kind, part.microbatch, at, end)


def messages(intervals: Iterable[Interval]) -> Iterator[tuple[Interval, Interval]]:
    """(what sends, what receives) of every message between ranks: activations forward, their
    gradients back."""
    forwards: dict[tuple[int, int], Interval] = {}
    backwards: dict[tuple[int, int], Interval] = {}
    for interval in intervals:
        if interval.kind != WEIGHT:
            (forwards if interval.kind == FORWARD else backwards)[
                interval.stage, interval.microbatch
            ] = interval
    for way, table in ((1, forwards), (-1, backwards)):
        for (stage, microbatch), received in table.items():
            other = table.get((stage + way, microbatch))
            if other is not None and other.rank != received.rank:
                yield received, other
