"""Schedules as trace events (chrome://tracing, ui.perfetto.dev); all seconds become microseconds.

A trace is {"traceEvents": [...]}: metadata events name processes and threads, complete events ("X")
are slices, and pairs of flow events ("s", "f") are the arrows of messages.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from planner.schedules.base import FORWARD, WEIGHT
from planner.schedules.timing import Program, Timing
from planner.show.drawing import Interval, intervals

Event = dict[str, Any]

KINDS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
_COLOURS = {
    "F": "good",
    "B": "bad",
    "I": "terrible",
    "W": "yellow",
}  # names of the trace viewer's palette


@dataclass
class Trace:
    """Events as they are added; `document` is what a viewer loads."""

    events: list[Event] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    _arrows: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def process(self, pid: int, name: str) -> None:
        self.events.append(
            {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        )
        self.events.append(
            {
                "ph": "M",
                "name": "process_sort_index",
                "pid": pid,
                "tid": 0,
                "args": {"sort_index": pid},
            }
        )

    def track(self, pid: int, tid: int, name: str) -> None:
        self.events.append(
            {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
        )
        self.events.append(
            {
                "ph": "M",
                "name": "thread_sort_index",
                "pid": pid,
                "tid": tid,
                "args": {"sort_index": tid},
            }
        )

    def slice(
        self, pid: int, tid: int, name: str, kind: str, start_s: float, end_s: float, **about: Any
    ) -> None:
        """A slice of time on a track; none where it takes no time."""
        if end_s <= start_s:
            return
        event: Event = {
            "ph": "X",
            "name": name,
            "cat": kind,
            "pid": pid,
            "tid": tid,
            "ts": start_s * 1e6,
            "dur": (end_s - start_s) * 1e6,
        }
        if about:
            colour = about.pop("colour", None)
            event["args"] = about
            if colour:
                event["cname"] = colour
        self.events.append(event)

    def arrow(
        self, name: str, source: tuple[int, int, float], target: tuple[int, int, float]
    ) -> None:
        """A message from the slice that ends at source (pid, tid, seconds) to the one that starts
        at target."""
        number = next(self._arrows)
        (pid, tid, at), (to_pid, to_tid, to) = source, target
        inside = 1e-3 * 1e-6  # a nanosecond: an arrow belongs to the slice that encloses its time
        self.events.append(
            {
                "ph": "s",
                "name": name,
                "cat": "send",
                "id": number,
                "pid": pid,
                "tid": tid,
                "ts": max(at - inside, 0.0) * 1e6,
            }
        )
        self.events.append(
            {
                "ph": "f",
                "bp": "e",
                "name": name,
                "cat": "send",
                "id": number,
                "pid": to_pid,
                "tid": to_tid,
                "ts": (to + inside) * 1e6,
            }
        )

    def document(self) -> dict[str, Any]:
        """What ui.perfetto.dev and chrome://tracing load."""
        return {"traceEvents": self.events, "displayTimeUnit": "ms", "otherData": self.about}

    def text(self) -> str:
        return json.dumps(self.document())


def messages(found: Iterable[Interval]) -> Iterator[tuple[Interval, Interval]]:
    """(what sends, what receives) of every message between ranks: activations forward, their
    gradients back."""
    forwards: dict[tuple[int, int], Interval] = {}
    backwards: dict[tuple[int, int], Interval] = {}
    for one in found:
        if one.kind != WEIGHT:
            (forwards if one.kind == FORWARD else backwards)[one.stage, one.microbatch] = one
    for way, table in ((1, forwards), (-1, backwards)):
        for (stage, microbatch), one in table.items():
            other = table.get((stage + way, microbatch))
            if other is not None and other.rank != one.rank:
                yield one, other


def of_schedule(program: Program, timing: Timing, title: str, about: dict[str, Any]) -> Trace:
    """One process, one track per rank, an arrow per message."""
    trace = Trace(about=about)
    found = list(intervals(program, timing))
    stages: dict[int, set[int]] = {rank: set() for rank in range(program.ranks)}
    for one in found:
        stages[one.rank].add(one.stage)
    trace.process(0, title)
    for rank, held in stages.items():
        word = "stage" if len(held) == 1 else "stages"
        trace.track(0, rank, f"rank {rank}, {word} {', '.join(map(str, sorted(held)))}")
    for one in found:
        trace.slice(
            0,
            one.rank,
            f"{one.stage}{one.kind}{one.microbatch}",
            KINDS[one.kind],
            one.start,
            one.end,
            stage=one.stage,
            microbatch=one.microbatch,
            colour=_COLOURS[one.kind],
        )
    for one, other in messages(found):
        trace.arrow(
            f"{one.stage} to {other.stage}", (0, one.rank, one.end), (0, other.rank, other.start)
        )
    return trace
