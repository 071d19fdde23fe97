"""A schedule drawn in characters: one line per rank, time from left to right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.schedules.base import BACKWARD, FORWARD, INPUT, WEIGHT
from planner.schedules.timing import Program, Timing

LEGEND = (
    "digit: forward, letter: backward or input gradient (both: last digit of the micro-batch), #:"
    " weight gradient, .: idle"
)
_LETTERS = "abcdefghij"


@dataclass(frozen=True)
class Interval:
    """One action on one rank; the halves of an overlapped pair share its time in turn."""

    rank: int
    stage: int
    kind: str
    microbatch: int
    start: float
    end: float


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
            yield Interval(
                rank,
                part.stage,
                part.kind,
                part.microbatch,
                start + i * each,
                start + (i + 1) * each,
            )


def character(kind: str, microbatch: int) -> str:
    """What an action looks like."""
    if kind == FORWARD:
        return str(microbatch % 10)
    return (
        "#" if kind == WEIGHT else _LETTERS[microbatch % 10] if kind in (BACKWARD, INPUT) else "?"
    )


def timeline(program: Program, timing: Timing, width: int = 100, most_ranks: int = 40) -> list[str]:
    """Lines of at most `width` characters; a column shows what runs at its middle. The first
    `most_ranks` ranks are drawn."""
    ranks = min(program.ranks, most_ranks)
    label = len(f"rank {program.ranks - 1}")
    columns = max(width - label - 3, 10)
    whole = float(timing.makespan[0])
    shortest = min(
        (one.end - one.start for one in intervals(program, timing) if one.end > one.start),
        default=whole,
    )
    if whole <= 0:
        return []
    units = whole / shortest  # with room for it, the shortest action gets a whole number of columns
    columns = (
        max(int(columns // units), 1) * round(units)
        if units <= columns and abs(units - round(units)) < 1e-6
        else columns
    )
    cells = [["."] * columns for _ in range(ranks)]
    for one in intervals(program, timing):
        if one.rank < ranks:
            first = max(int(one.start / whole * columns + 0.5), 0)
            last = min(int(one.end / whole * columns + 0.5), columns)
            cells[one.rank][first:last] = character(one.kind, one.microbatch) * (last - first)
    out = [f"{f'rank {r}':<{label}} |{''.join(line)}|" for r, line in enumerate(cells)]
    if ranks < program.ranks:
        out.append(f"({program.ranks - ranks} more ranks)")
    return out
