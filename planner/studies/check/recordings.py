"""Traces and snapshots line by line beside the ledgers of the prediction."""

from __future__ import annotations

from collections.abc import Mapping

from planner.inputs.secrets import scrubbed
from planner.specs.documents.estimate import Estimate
from planner.studies.documents.check import HeldLine, SnapshotBytes, TraceLine, TraceTimes
from planner.studies.traces.pickles import UNKNOWN
from planner.studies.traces.profiler import OTHER, Trace
from planner.studies.traces.snapshot import Snapshot

_OFF, _MATTERS = 0.15, 0.02  # of the prediction, and of the step: beyond both a line is wrong
_COMPUTE = ("matmul", "attention", OTHER)  # classes that recompute repeats
_WIRES = (
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "data_parallel",
    "pipeline_transfer",
    "offload",
)
_KINDS = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"})
_IDLE = ("launch", "bubble", "overhead", "stragglers", "input", "nvme")
_SAYS = {
    "matmul": "GEMMs, recompute included",
    "attention": "attention kernels, recompute included",
    OTHER: "norms, activations, loss and all kernels outside the other classes",
    "optimizer": "kernels of the update",
    "communication": "all collectives, waiting for other ranks inside them too",
    "exposed": "communication and copies that no compute overlaps",
    "idle": "nothing runs: launches, the pipeline's bubble, slower ranks, data",
}


_OF_KIND = "collectives of this kind"


def trace_times(trace: Trace, predicted: Estimate | None) -> TraceTimes:
    """A trace as parts of one step."""
    steps = max(trace.steps, 1)
    expected = _expected(predicted) if predicted else {}
    measured = {name: trace.seconds.get(name, 0.0) for name in (*_COMPUTE, "optimizer")}
    kinds = {**dict.fromkeys(_KINDS.intersection(expected), 0.0), **trace.collectives}
    measured |= dict(sorted(kinds.items()))
    measured["communication"] = trace.seconds.get("communication", 0.0)
    measured |= {"exposed": trace.exposed, "idle": trace.idle}
    step_s = predicted.step.seconds if predicted else 0.0
    lines = [
        _line(name, seconds / steps, expected.get(name), step_s, trace, steps)
        for name, seconds in measured.items()
    ]
    return TraceTimes(
        steps=steps,
        seconds=trace.span / steps,
        lines=lines,
        first_wrong=next((line.name for line in lines if line.wrong), None),
        collectives={name: s / steps for name, s in trace.collectives.items()},
        longest={scrubbed(name): s / steps for name, s in trace.longest.items()},
        gaps=round(trace.gaps / steps),
    )


def _expected(predicted: Estimate) -> dict[str, float]:
    """The ledger of the step by the classes of a trace. Recompute repeats the forward kernels of
    every class, here in the proportion of what the step has of them."""
    parts = predicted.step.components
    again, whole = parts.get("recompute", 0.0), sum(parts.get(name, 0.0) for name in _COMPUTE)
    seconds = {name: parts.get(name, 0.0) * (1 + again / (whole or 1.0)) for name in _COMPUTE}
    wires = [traffic for traffic in predicted.communication if traffic.group != "host"]
    kinds: dict[str, float] = dict.fromkeys(_KINDS, 0.0)
    for wire in wires:
        kinds[wire.operation] = kinds.get(wire.operation, 0.0) + wire.seconds
    return {
        **seconds,
        **{name: seconds for name, seconds in kinds.items() if seconds},
        "optimizer": parts.get("optimizer", 0.0),
        "communication": sum(wire.seconds for wire in wires),
        "exposed": sum(parts.get(name, 0.0) for name in _WIRES),
        "idle": sum(parts.get(name, 0.0) for name in _IDLE),
    }


def _line(
    name: str, seconds: float, expected: float | None, step_s: float, trace: Trace, steps: int
) -> TraceLine:
    off = abs(seconds - expected) if expected is not None else 0.0
    count = trace.counts.get(name)
    return TraceLine(
        name=name,
        measured_s=seconds,
        predicted_s=expected,
        kernels=None if count is None else round(count / steps),
        wrong=off > _MATTERS * step_s and off > _OFF * (expected or 0.0),
        says=_SAYS.get(name, _OF_KIND),
    )


def snapshot_bytes(recorded: Snapshot, predicted: Estimate | None) -> SnapshotBytes:
    """A snapshot by component of memory."""
    expected: Mapping[str, float] = predicted.memory.components if predicted else {}
    names = [*recorded.held, *(name for name in expected if name not in recorded.held)]
    lines = [
        HeldLine(
            name=name,
            measured_bytes=recorded.held.get(name, 0.0),
            predicted_bytes=expected.get(name) if predicted and name != UNKNOWN else None,
        )
        for name in names
        if recorded.held.get(name, 0.0) or expected.get(name, 0.0)
    ]
    return SnapshotBytes(
        reserved_bytes=recorded.reserved,
        allocated_bytes=recorded.allocated,
        reserved_free_bytes=recorded.reserved_free,
        largest_free_bytes=recorded.freest,
        peak_bytes=recorded.peak,
        segments=recorded.segments,
        held=sorted(lines, key=lambda line: -max(line.measured_bytes, line.predicted_bytes or 0.0)),
    )
