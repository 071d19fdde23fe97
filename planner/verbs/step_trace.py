"""The trace of one estimated step: compute, tensor, data and pipeline communication of every
pipeline rank on own tracks.

What is exact: the order of actions, the seconds of every stage, the messages, the seconds and calls
of the data-parallel collectives. What is drawn at its mean: exposed collectives inside a pass
follow each layer in equal shares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner import schedules
from planner.estimate import Estimates
from planner.estimate.pipeline import chunk_seconds
from planner.estimate.sync import LAST_BYTES
from planner.schedules import timing
from planner.schedules.base import FORWARD, WEIGHT
from planner.show.drawing import Interval, intervals
from planner.show.trace import KINDS, Trace, messages

_COMPUTE, _PIPELINE, _DATA, _FIRST_GROUP = 0, 1, 2, 3  # tracks of a rank
_GROUPS = {
    "tensor_parallel": "tensor parallel",
    "context_parallel": "context parallel",
    "expert_parallel": "expert parallel",
    "offload": "host copies",
}
_MOST_BUCKETS = 64  # drawn; more are drawn together
_MOST_LAYER_SLICES = (
    150_000  # beyond it a pass is one slice of compute and one of each communication
)


@dataclass(frozen=True)
class _Pass:
    """What one pass of a layer is made of, as shares of its time."""

    exposed: dict[str, float]  # by component
    layers: float  # per chunk, drawn


def of_estimate(one: Estimates) -> Trace:
    """Trace of row 0 of an estimate. Ranks of one tensor and data group do the same: one process
    per pipeline rank."""
    layout, step = one.table.layout(0), one.time
    p, v = layout.pp, layout.vpp
    m = round(one.plan.training.global_batch / (layout.dp * layout.micro_batch))
    name = layout.schedule if p > 1 else "1f1b"
    forward, given, weight = (x[:, 0] for x in chunk_seconds(list(step.ranks.work), p, v))
    sends = [t for t in step.traffic if t.operation == "send_recv" and t.count[0] > 0]
    send = float(sends[0].seconds[0] / sends[0].count[0]) if sends else 0.0
    lists = schedules.fitted_actions(name, p, m, v if p > 1 else 1, forward, given, weight, send)
    program = timing.compiled(lists)
    hidden = bool(sends) and float(sends[0].exposed[0]) < 0.5 * float(sends[0].seconds[0])
    timed = timing.timed(
        program, timing.Durations(forward, given, weight, send=send, blocking=not hidden), keep=True
    )
    found = list(intervals(program, timed))
    about = {
        "model": one.plan.model.name,
        "gpu": one.plan.cluster.gpu.id,
        "stack": one.plan.stack.id,
        "layout": layout.model_dump(),
        "estimated_step_s": float(step.seconds[0]),
        "note": "overhead (stragglers, data loading) of the estimate is not drawn",
    }
    trace = Trace(about=about)
    shares = _pass(one, m, float(np.max(step.ranks.slowest_s())), p * v * m)
    groups = [c for c in _GROUPS if c in shares.exposed]
    for rank in range(p):
        trace.process(rank, f"pipeline rank {rank}" if p > 1 else "every rank")
        for tid, word in (
            (_COMPUTE, "compute"),
            (_PIPELINE, "pipeline parallel"),
            (_DATA, "data parallel"),
        ):
            trace.track(rank, tid, word)
        for i, component in enumerate(groups):
            trace.track(rank, _FIRST_GROUP + i, _GROUPS[component])
    for action in found:
        _draw_pass(trace, action, shares, groups)
    _draw_sends(trace, found, send)
    end = [max((a.end for a in found if a.rank == rank), default=0.0) for rank in range(p)]
    per_layer = float(one.table.zero[0]) >= 3 or (float(one.table.zero[0]) == 2 and p == 1)
    if per_layer:
        _draw_sharded(trace, one, found)
    ends = [
        _draw_end(trace, one, rank, end[rank], [a for a in found if a.rank == rank], per_layer)
        for rank in range(p)
    ]
    about["drawn_s"] = max(ends)
    return trace


def _pass(one: Estimates, m: int, slowest_s: float, actions: int) -> _Pass:
    """Shares of exposed collectives in the passes of the slowest rank."""
    c = one.time.components
    exposed = {
        name: float(np.asarray(c[name]).reshape(-1)[0]) / (m * slowest_s)
        for name in _GROUPS
        if name in c and float(np.asarray(c[name]).reshape(-1)[0]) > 0
    }
    layers = max(round(float(one.time.stage_layers[0]) / float(one.table.vpp[0])), 1)
    detailed = actions * 3 * layers * (1 + len(exposed)) <= _MOST_LAYER_SLICES
    return _Pass(exposed, layers if detailed else 1)


def _draw_pass(trace: Trace, action: Interval, shares: _Pass, groups: list[str]) -> None:
    """Compute of each layer, then what it waits for; weight gradients communicate nothing."""
    text = f"{action.stage}{action.kind}{action.microbatch}"
    exposed = {} if action.kind == WEIGHT else shares.exposed
    count = int(shares.layers)
    each = (action.end - action.start) / count
    working = each * max(1 - sum(exposed.values()), 0.0)
    for i in range(count):
        at = action.start + i * each
        layer = "" if count == 1 else f" layer {i if action.kind == FORWARD else count - 1 - i}"
        trace.slice(
            action.rank,
            _COMPUTE,
            text + layer,
            KINDS[action.kind],
            at,
            at + working,
            stage=action.stage,
            microbatch=action.microbatch,
        )
        at += working
        for tid, component in enumerate(groups, _FIRST_GROUP):
            taken = each * exposed.get(component, 0.0)
            trace.slice(action.rank, tid, f"{_GROUPS[component]}{layer}", component, at, at + taken)
            at += taken


def _draw_sends(trace: Trace, found: list[Interval], send: float) -> None:
    """A slice for the time on the wire, an arrow to what waits for it. Messages of one rank follow
    each other."""
    free: dict[int, float] = {}
    for one, other in sorted(messages(found), key=lambda pair: pair[0].end):
        start = max(one.end, free.get(one.rank, 0.0))
        free[one.rank] = start + send
        word = "activations" if one.kind == FORWARD else "gradients"
        trace.slice(
            one.rank,
            _PIPELINE,
            f"send {word} {one.microbatch} to rank {other.rank}",
            "send",
            start,
            start + send,
        )
        source = (
            one.rank,
            _PIPELINE if send > 0 else _COMPUTE,
            start + send if send > 0 else one.end,
        )
        trace.arrow(f"{one.stage} to {other.stage}", source, (other.rank, _COMPUTE, other.start))


def _draw_sharded(trace: Trace, one: Estimates, found: list[Interval]) -> None:
    """ZeRO-3: every pass gathers its layers one ahead, every backward scatters their gradients one
    behind (ZeRO-2 the latter)."""
    calls = {t.operation: t for t in one.time.traffic if t.group == "data" and t.count[0] > 1}
    layers = max(round(float(one.time.stage_layers[0]) / float(one.table.vpp[0])), 1)
    if len(found) * layers * 3 > _MOST_LAYER_SLICES:
        layers = 1
    free: dict[int, float] = {}

    def put(rank: int, operation: str, at: float, word: str) -> None:
        t = calls.get(operation)
        if t is None:
            return
        passes = float(one.time.stage_layers[0]) / float(one.table.vpp[0]) / layers
        start = max(at, free.get(rank, 0.0))
        free[rank] = start + float(t.seconds[0] / t.count[0]) * passes
        trace.slice(
            rank,
            _DATA,
            f"{operation} {word}",
            "data_parallel",
            start,
            free[rank],
            bytes=float(t.bytes[0]),
        )

    for action in sorted(found, key=lambda a: a.start):
        if action.kind == WEIGHT:
            continue
        each = (action.end - action.start) / layers
        for i in range(layers):
            put(action.rank, "all_gather", max(action.start + (i - 1) * each, 0.0), "parameters")
            if action.kind != FORWARD:
                put(action.rank, "reduce_scatter", action.start + (i + 1) * each, "gradients")


def _draw_end(
    trace: Trace, one: Estimates, rank: int, end: float, mine: list[Interval], per_layer: bool
) -> float:
    """Gradient buckets that start while the last backwards run, the optimizer, and ZeRO-1's gather
    of parameters."""
    at = end
    reduce = [
        t
        for t in one.time.traffic
        if t.group == "data" and t.what == "gradients of the stage" and t.seconds[0] > 0
    ]
    gather = [
        t
        for t in one.time.traffic
        if t.group == "data" and t.what == "parameters of the stage" and t.seconds[0] > 0
    ]
    if reduce and not per_layer:
        t = reduce[0]
        seconds, exposed = float(t.seconds[0]), float(t.exposed[0])
        buckets = int(min(max(np.ceil(float(t.bytes[0]) / LAST_BYTES), 1), _MOST_BUCKETS))
        backward = sorted((a for a in mine if a.kind != FORWARD), key=lambda a: a.end)
        window = (
            seconds - exposed
        )  # what the estimate hides: buckets get ready evenly over that long before backward ends
        first = max(end - max(window, 0.0), backward[0].start if backward else end)
        for i in range(buckets):
            ready = first + (end - first) * (i + 1) / buckets if exposed < seconds else end
            start = max(ready, at if i else 0.0)
            at = start + seconds / buckets
            trace.slice(
                rank,
                _DATA,
                f"{t.operation} bucket {i}",
                "data_parallel",
                start,
                at,
                bytes=float(t.bytes[0]) / buckets,
            )
    at = max(at, end)
    optimizer = float(np.asarray(one.time.components["optimizer"]).reshape(-1)[0])
    trace.slice(rank, _COMPUTE, "optimizer", "optimizer", at, at + optimizer)
    at += optimizer
    if gather and not per_layer:
        seconds = float(gather[0].seconds[0])
        trace.slice(
            rank,
            _DATA,
            "all_gather parameters",
            "data_parallel",
            at,
            at + seconds,
            bytes=float(gather[0].bytes[0]),
        )
        at += float(gather[0].exposed[0])
    return at
