"""Schedules as trace events (chrome://tracing, ui.perfetto.dev); all seconds become microseconds.

A trace is {"traceEvents": [...]}: metadata events name processes and tracks, complete events ("X")
are slices, and pairs of flow events ("s", "f") are the arrows of messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner.schedules.intervals import KINDS, intervals, messages
from planner.schedules.timing import Program, Timing
from planner.specs.document import to_json

Event = dict[str, Any]

_US = 1e6  # microseconds in a second
_INSIDE_S = 1e-9  # an arrow belongs to the slice that encloses its time
# names of the trace viewer's palette
_COLORS = {"F": "good", "B": "bad", "I": "terrible", "W": "yellow"}


@dataclass(frozen=True)
class Trace:
    """Events by kind."""

    events: list[Event]
    about: dict[str, Any]

    def text(self) -> str:
        """A trace that ui.perfetto.dev and chrome://tracing load."""
        return to_json(
            {"traceEvents": self.events, "displayTimeUnit": "ms", "otherData": self.about}
        )


def process(pid: int, name: str) -> Iterator[Event]:
    """A group of tracks, in the order of their numbers."""
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    order = {"sort_index": pid}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": order}


def track(pid: int, tid: int, name: str) -> Iterator[Event]:
    """A line of slices, in the order of their numbers."""
    yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
    order = {"sort_index": tid}
    yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": order}


def piece(
    pid: int,
    tid: int,
    name: str,
    kind: str,
    start_s: float,
    end_s: float,
    color: str | None = None,
    **about: float,
) -> Iterator[Event]:
    """A slice of time on a track; none where it takes no time."""
    if end_s > start_s:
        yield {
            "ph": "X",
            "name": name,
            "cat": kind,
            "pid": pid,
            "tid": tid,
            "ts": start_s * _US,
            "dur": (end_s - start_s) * _US,
            **({"args": about} if about else {}),
            **({"cname": color} if color else {}),
        }


def arrow(
    number: int, name: str, source: tuple[int, int, float], target: tuple[int, int, float]
) -> Iterator[Event]:
    """A message from the slice that ends at source (pid, tid, seconds) to the one that starts at
    target; every arrow has a number of its own."""
    (pid, tid, at), (to_pid, to_tid, to) = source, target
    common = {"name": name, "cat": "send", "id": number}
    leaves, arrives = max(at - _INSIDE_S, 0.0) * _US, (to + _INSIDE_S) * _US
    yield {"ph": "s", **common, "pid": pid, "tid": tid, "ts": leaves}
    yield {"ph": "f", "bp": "e", **common, "pid": to_pid, "tid": to_tid, "ts": arrives}


def of_schedule(program: Program, timing: Timing, title: str, about: dict[str, Any]) -> Trace:
    """One process, one track per rank, an arrow per message."""
    passes = list(intervals(program, timing))
    stages: dict[int, set[int]] = {rank: set() for rank in range(program.ranks)}
    for interval in passes:
        stages[interval.rank].add(interval.stage)
    events = [*process(0, title)]
    for rank, layers in stages.items():
        word = "stage" if len(layers) == 1 else "stages"
        events += track(0, rank, f"rank {rank}, {word} {', '.join(map(str, sorted(layers)))}")
    for interval in passes:
        events += piece(
            0,
            interval.rank,
            f"{interval.stage}{interval.kind}{interval.microbatch}",
            KINDS[interval.kind],
            interval.start,
            interval.end,
            color=_COLORS[interval.kind],
            stage=interval.stage,
            microbatch=interval.microbatch,
        )
    for number, (sent, other) in enumerate(messages(passes), 1):
        name = f"{sent.stage} to {other.stage}"
        events += arrow(number, name, (0, sent.rank, sent.end), (0, other.rank, other.start))
    return Trace(events, about)
