"""A pipeline schedule in characters: a line per rank."""

from __future__ import annotations

from planner.schedules.base import BACKWARD, FORWARD, INPUT, WEIGHT
from planner.schedules.intervals import intervals
from planner.schedules.timing import Program, Timing

LEGEND = (
    "digit: forward, letter: backward or input gradient (both: last digit of the micro-batch), #:"
    " weight gradient, .: idle"
)
_LETTERS = "abcdefghij"
_MOST_DRAWN_RANKS = 40


def character(kind: str, microbatch: int) -> str:
    """Look of an action."""
    if kind == FORWARD:
        return str(microbatch % 10)
    if kind == WEIGHT:
        return "#"
    return _LETTERS[microbatch % 10] if kind in (BACKWARD, INPUT) else "?"


def timeline(program: Program, timing: Timing, width: int = 100) -> list[str]:
    """One line of at most `width` characters per rank, time from left to right; a column shows what
    runs at its middle."""
    whole = float(timing.makespan[0])
    if whole <= 0:
        return []
    passes = list(intervals(program, timing))
    shortest = min((interval.seconds for interval in passes if interval.seconds > 0), default=whole)
    label = len(f"rank {program.ranks - 1}")
    columns = _columns(whole / shortest, max(width - label - 3, 10))
    ranks = min(program.ranks, _MOST_DRAWN_RANKS)
    cells = [["."] * columns for _ in range(ranks)]
    for interval in passes:
        if interval.rank < ranks:
            first = max(int(interval.start / whole * columns + 0.5), 0)
            last = min(int(interval.end / whole * columns + 0.5), columns)
            cells[interval.rank][first:last] = character(interval.kind, interval.microbatch) * (
                last - first
            )
    out = [f"{f'rank {r}':<{label}} |{''.join(line)}|" for r, line in enumerate(cells)]
    if ranks < program.ranks:
        out.append(f"({program.ranks - ranks} more ranks)")
    return out


def _columns(units: float, room: int) -> int:
    """Columns of a step of this many times its shortest action, which gets a whole number of them
    where there is room."""
    whole = round(units)
    return (
        max(int(room // units), 1) * whole if units <= room and abs(units - whole) < 1e-6 else room
    )
