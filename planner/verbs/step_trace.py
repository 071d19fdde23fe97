"""The trace of one estimated step: compute, tensor, data and pipeline communication of every
pipeline rank on own tracks.

What is exact: the order of actions, the seconds of every stage, the messages, the seconds and calls
of the data-parallel collectives. What is drawn at its mean: exposed collectives inside a pass
follow each layer in equal shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from planner import schedules
from planner.estimate import Estimates
from planner.estimate.communicate import Traffic
from planner.estimate.pipeline import chunk_seconds, sends_overlap
from planner.estimate.sync import LAST_BYTES
from planner.ledger import Array
from planner.schedules import timing
from planner.schedules.base import FORWARD, WEIGHT
from planner.schedules.intervals import KINDS, Interval, intervals, messages
from planner.specs.options import Options
from planner.verbs.estimate import chosen
from planner.views.trace import Event, Trace, arrow, piece, process, track

_COMPUTE, _PIPELINE, _DATA, _FIRST_GROUP = 0, 1, 2, 3  # tracks of a rank
_TRACKS = {_COMPUTE: "compute", _PIPELINE: "pipeline parallel", _DATA: "data parallel"}
_GROUPS = {
    "tensor_parallel": "tensor parallel",
    "context_parallel": "context parallel",
    "expert_parallel": "expert parallel",
    "offload": "host copies",
}
_MOST_BUCKETS = 64  # drawn; more are drawn together
MOST_LAYER_SLICES = 150_000  # beyond it a pass is one slice of compute and one of each collective
_KINDS = 3  # passes of a micro-batch: forward, input gradient, weight gradient


def text(options: Options) -> str:
    """Trace events of the step that an estimate with these options answers with, as JSON text."""
    return of_estimate(chosen(options)).text()


@dataclass(frozen=True)
class _Step:
    """A timed step of row 0 of an estimate."""

    estimates: Estimates
    intervals: list[Interval]
    ranks: int
    microbatches: int
    send_s: float
    layers: int  # of a chunk

    def of_rank(self, rank: int) -> list[Interval]:
        return [action for action in self.intervals if action.rank == rank]

    @property
    def per_layer(self) -> bool:
        """Data parallelism communicates in every layer: ZeRO-3, and ZeRO-2 without a pipeline."""
        zero = _first(self.estimates.table.zero)
        return zero >= 3 or (zero == 2 and self.ranks == 1)

    def traffic(self, subject: str) -> Traffic | None:
        """The data-parallel collective over this, once per step."""
        calls = (t for t in self.estimates.time.traffic if t.group == "data" and t.what == subject)
        return next((t for t in calls if t.seconds[0] > 0), None)


def _first(column: Array) -> float:
    return float(np.ravel(column)[0])


def _timed(estimates: Estimates) -> _Step:
    layout, step = estimates.table.layout(0), estimates.time
    p, v = layout.pp, layout.vpp if layout.pp > 1 else 1
    m = round(estimates.plan.training.global_batch / (layout.dp * layout.micro_batch))
    name = layout.schedule if p > 1 else "1f1b"
    chunks = chunk_seconds(estimates.plan, step.ranks.each, p, v)
    forward, given, weight = (x[:, 0] for x in chunks)
    sent = next((t for t in step.traffic if t.operation == "send_recv" and t.count[0] > 0), None)
    send = _first(sent.seconds) / _first(sent.count) if sent else 0.0
    program = timing.compiled(schedules.fitted_actions(name, p, m, v, forward, given, weight, send))
    blocking = not np.all(sends_overlap(estimates.plan, estimates.table.pick([0])))
    durations = timing.Durations(forward, given, weight, send=send, blocking=blocking)
    spans = list(intervals(program, timing.timed(program, durations, keep=True)))
    layers = max(round(_first(step.stage_layers) / layout.vpp), 1)
    return _Step(estimates, spans, p, m, send, layers)


def of_estimate(estimates: Estimates) -> Trace:
    """Trace of row 0 of an estimate. Ranks of one tensor and data group do the same: one process
    per pipeline rank."""
    step = _timed(estimates)
    exposed = _exposed(step)
    passes = sum(action.kind == FORWARD for action in step.intervals)
    slices = passes * _KINDS * step.layers * (1 + len(exposed))
    layers = step.layers if slices <= MOST_LAYER_SLICES else 1
    tracks = {component: tid for tid, component in enumerate(exposed, _FIRST_GROUP)}
    events = list(_tracks(step.ranks, tracks))
    for action in step.intervals:
        events += _pass(action, exposed, layers, tracks)
    events += _sends(step)
    if step.per_layer:
        events += _sharded(step)
    ends = []
    for rank in range(step.ranks):
        drawn, end = _end(step, rank)
        events += drawn
        ends.append(end)
    return Trace(
        events,
        {
            "model": estimates.plan.model.name,
            "gpu": estimates.plan.cluster.gpu.id,
            "stack": estimates.plan.stack.id,
            "layout": estimates.table.layout(0).model_dump(),
            "estimated_step_s": _first(estimates.time.seconds),
            "note": "overhead (stragglers, data loading) of the estimate is not drawn",
            "drawn_s": max(ends),
        },
    )


def _tracks(ranks: int, tracks: dict[str, int]) -> Iterator[Event]:
    for rank in range(ranks):
        yield from process(rank, f"pipeline rank {rank}" if ranks > 1 else "every rank")
        for tid, word in _TRACKS.items():
            yield from track(rank, tid, word)
        for component, tid in tracks.items():
            yield from track(rank, tid, _GROUPS[component])


def _exposed(step: _Step) -> dict[str, float]:
    """Exposed collectives by component, as shares of the passes of the slowest rank."""
    components = step.estimates.time.components
    passes_s = step.microbatches * float(np.max(step.estimates.time.ranks.slowest_s()))
    seconds_by_group = {name: _first(components[name]) for name in _GROUPS if name in components}
    return {name: seconds / passes_s for name, seconds in seconds_by_group.items() if seconds > 0}


def _pass(
    action: Interval, exposed: dict[str, float], layers: int, tracks: dict[str, int]
) -> Iterator[Event]:
    """Compute of each layer, then what it waits for; weight gradients communicate nothing."""
    name = f"{action.stage}{action.kind}{action.microbatch}"
    waits = {} if action.kind == WEIGHT else exposed
    each = action.seconds / layers
    working = each * max(1 - sum(waits.values()), 0.0)
    for i in range(layers):
        at = action.start + i * each
        layer = f" layer {i if action.kind == FORWARD else layers - 1 - i}" if layers > 1 else ""
        yield from piece(
            action.rank,
            _COMPUTE,
            name + layer,
            KINDS[action.kind],
            at,
            at + working,
            stage=action.stage,
            microbatch=action.microbatch,
        )
        at += working
        for component, share in waits.items():
            taken = each * share
            title = f"{_GROUPS[component]}{layer}"
            yield from piece(action.rank, tracks[component], title, component, at, at + taken)
            at += taken


def _sends(step: _Step) -> Iterator[Event]:
    """A slice for the time on the wire, an arrow to what waits for it. Messages of one rank follow
    each other."""
    free: dict[int, float] = {}
    pairs = sorted(messages(step.intervals), key=lambda pair: pair[0].end)
    for number, (first, other) in enumerate(pairs, 1):
        start = max(first.end, free.get(first.rank, 0.0))
        end = free[first.rank] = start + step.send_s
        word = "activations" if first.kind == FORWARD else "gradients"
        name = f"send {word} {first.microbatch} to rank {other.rank}"
        yield from piece(first.rank, _PIPELINE, name, "send", start, end)
        on_wire = step.send_s > 0
        source = (first.rank, _PIPELINE, end) if on_wire else (first.rank, _COMPUTE, first.end)
        target = (other.rank, _COMPUTE, other.start)
        yield from arrow(number, f"{first.stage} to {other.stage}", source, target)


def _sharded(step: _Step) -> Iterator[Event]:
    """ZeRO-3: every pass gathers its layers one ahead, every backward scatters their gradients one
    behind (ZeRO-2 the latter)."""
    time, vpp = step.estimates.time, _first(step.estimates.table.vpp)
    calls = {t.operation: t for t in time.traffic if t.group == "data" and t.count[0] > 1}
    layers = step.layers if len(step.intervals) * step.layers * _KINDS <= MOST_LAYER_SLICES else 1
    drawn_together = _first(time.stage_layers) / vpp / layers
    free: dict[int, float] = {}

    def put(rank: int, operation: str, at: float, word: str) -> Iterator[Event]:
        t = calls.get(operation)
        if t is None:
            return
        start = max(at, free.get(rank, 0.0))
        end = free[rank] = start + float(t.seconds[0] / t.count[0]) * drawn_together
        title = f"{operation} {word}"
        size = float(t.bytes[0])
        yield from piece(rank, _DATA, title, "data_parallel", start, end, bytes=size)

    for action in sorted(step.intervals, key=lambda a: a.start):
        if action.kind == WEIGHT:
            continue
        each = action.seconds / layers
        for i in range(layers):
            ahead = max(action.start + (i - 1) * each, 0.0)
            yield from put(action.rank, "all_gather", ahead, "parameters")
            if action.kind != FORWARD:
                behind = action.start + (i + 1) * each
                yield from put(action.rank, "reduce_scatter", behind, "gradients")


def _end(step: _Step, rank: int) -> tuple[list[Event], float]:
    """Gradient buckets that start while the last backwards run, the optimizer, and ZeRO-1's gather
    of parameters; with the second at which the rank is done."""
    mine = step.of_rank(rank)
    at = last = max((action.end for action in mine), default=0.0)
    whole = not step.per_layer
    reduced = step.traffic("gradients of the stage") if whole else None
    gathered = step.traffic("parameters of the stage") if whole else None
    events: list[Event] = []
    if reduced is not None:
        spans = _buckets(reduced, last, mine)
        size = float(reduced.bytes[0]) / len(spans)
        for i, (start, end) in enumerate(spans):
            name = f"{reduced.operation} bucket {i}"
            events += piece(rank, _DATA, name, "data_parallel", start, end, bytes=size)
            at = max(end, last)
    optimizer = _first(step.estimates.time.components["optimizer"])
    events += piece(rank, _COMPUTE, "optimizer", "optimizer", at, at + optimizer)
    at += optimizer
    if gathered is not None:
        end, size = at + float(gathered.seconds[0]), float(gathered.bytes[0])
        name = "all_gather parameters"
        events += piece(rank, _DATA, name, "data_parallel", at, end, bytes=size)
        at += float(gathered.exposed[0])
    return events, at


def _buckets(reduced: Traffic, last: float, mine: Sequence[Interval]) -> list[tuple[float, float]]:
    """Start and end of every bucket. What the estimate hides: buckets get ready evenly over that
    long before the end of the last backward."""
    seconds, exposed = float(reduced.seconds[0]), float(reduced.exposed[0])
    count = int(min(max(np.ceil(float(reduced.bytes[0]) / LAST_BYTES), 1), _MOST_BUCKETS))
    started = min((a for a in mine if a.kind != FORWARD), key=lambda a: a.end, default=None)
    first = max(last - max(seconds - exposed, 0.0), started.start if started else last)
    spans: list[tuple[float, float]] = []
    for i in range(count):
        ready = first + (last - first) * i / max(count - 1, 1) if exposed < seconds else last
        start = max(ready, spans[-1][1] if spans else 0.0)
        spans.append((start, start + seconds / count))
    return spans
