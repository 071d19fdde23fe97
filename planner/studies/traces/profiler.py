"""A trace of torch's profiler (`export_chrome_trace`): kernels, collectives and copies of one GPU.

The file is read as it streams past: only the times of what ran on the GPU are kept.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from planner.ledger import Array
from planner.specs.base import PlanError
from planner.studies.logs.objects import objects
from planner.studies.logs.stream import Pieces

_US = 1e-6
_FOREVER = 1e18  # microseconds: no clock of a trace is so late
MOST_EVENTS = 3_000_000  # on the GPU: 24 bytes each
_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
# names of kernels, and their class of the step; the first that fits counts
CLASSES: tuple[tuple[str, str], ...] = (
    (
        "communication",
        r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|deep_ep|nvshmem|sendrecv",
    ),
    ("attention", r"flash|fmha|attn|attention|aiter|sdpa"),
    ("optimizer", r"adam|multi_tensor|foreach|lamb|l2norm|fused_sgd"),
    (
        "matmul",
        r"gemm|cutlass|xmma|nvjet|cublas|wgmma|s16816|s1688|wmma|^Cijk_|matmul|splitK|_mm_|conv",
    ),
)
OTHER = "memory_bound"
COPY = "copies"
_COLLECTIVES: tuple[tuple[str, str], ...] = (
    (r"(?i)all_?reduce", "all_reduce"),
    (r"(?i)all_?gather", "all_gather"),
    (r"(?i)reduce_?scatter", "reduce_scatter"),
    (r"(?i)all_?to_?all|deep_ep", "all_to_all"),
    (r"(?i)send|recv", "send_recv"),
)
_STEP = re.compile(r"ProfilerStep#(\d{1,15})(?!\d)")
_NAME = 500  # characters of a name that say what a kernel is: templates repeat themselves
_BEGINS = re.compile(r'\A\s*\[|"traceEvents"\s*:\s*\[')


@dataclass
class Trace:
    """Kernel times of one GPU. seconds: of kernels by class, times that overlap counted twice;
    exposed: of them, those beside which nothing of the classes before ran; idle: nothing ran at
    all. steps: of the profiler. gaps: number of pauses between kernels."""

    span: float = 0.0
    steps: int = 0
    kernels: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    collectives: dict[str, float] = field(default_factory=dict)
    longest: dict[str, float] = field(default_factory=dict)  # kernels by name, the longest
    compute: float = 0.0  # in which compute runs
    exposed: float = 0.0  # in which communication or copies run, and no compute
    idle: float = 0.0
    gaps: int = 0
    gpu: str = ""
    partly: str = ""


def is_one(head: bytes) -> bool:
    """Whether a file begins as a trace."""
    return head.lstrip()[:1] in (b"{", b"[") and (
        b'"traceEvents"' in head or (b'"ph"' in head and b'"ts"' in head)
    )


def read_trace(source: Pieces, path: Path, name: str) -> Trace:
    """Contents of a trace. Raises PlanError if it is broken or has no GPU kernel."""
    events = _Events()
    for event in objects(source, path, name, "trace", _BEGINS):
        events.take(event)
        if events.count >= MOST_EVENTS:
            source.partly = f"its first {MOST_EVENTS:,} kernels"
            break
    if not events.count:
        remedy = (
            "has no kernel of a GPU; record with activities=[ProfilerActivity.CPU,"
            " ProfilerActivity.CUDA]"
        )
        raise PlanError(name, str(path), remedy)
    out = events.summed()
    out.partly = source.partly
    return out


class _Events:
    """Times of GPU kernels and copies, by class."""

    def __init__(self) -> None:
        self.count = 0
        self._start: dict[str, array[float]] = {}
        self._end: dict[str, array[float]] = {}
        self._steps: set[int] = set()
        self._span: list[float] = []
        self._named: dict[str, float] = {}
        self._collectives: dict[str, float] = {}
        self._device: Any = None

    def take(self, event: dict[str, Any]) -> None:
        """A kernel or copy of the first GPU of the trace, or a mark of the profiler's steps."""
        kind, name = event.get("cat"), str(event.get("name", ""))[:_NAME]
        start, length = event.get("ts"), event.get("dur")
        if event.get("ph") != "X" or not _is_time(start) or not _is_time(length):
            return
        if kind in _GPU:
            self._kernel(name, event, float(start), float(length))  # type: ignore[arg-type]
        elif (step := _STEP.match(name)) and kind in ("user_annotation", "cpu_op", None):
            self._steps.add(int(step[1]))

    def _kernel(self, kernel: str, event: dict[str, Any], start: float, length: float) -> None:
        arguments = event.get("args")
        device = arguments.get("device") if isinstance(arguments, dict) else None
        if self._device is None:
            self._device = device
        if device != self._device:
            return
        kind = COPY if event["cat"] != "kernel" else class_of(kernel)
        self._start.setdefault(kind, array("d")).append(start * _US)
        self._end.setdefault(kind, array("d")).append((start + length) * _US)
        self.count += 1
        if kind == "communication":
            name = next(
                (collective for word, collective in _COLLECTIVES if re.search(word, kernel)),
                "other",
            )
            self._collectives[name] = self._collectives.get(name, 0.0) + length * _US
        name = kernel[:100]
        if name in self._named or len(self._named) < _MOST_NAMES:
            self._named[name] = self._named.get(name, 0.0) + length * _US

    def summed(self) -> Trace:
        """Sums by class, and the idle time."""
        spans = {
            kind: (np.frombuffer(self._start[kind]), np.frombuffer(self._end[kind]))
            for kind in self._start
        }
        first = min(float(times[0].min()) for times in spans.values())
        last = max(float(times[1].max()) for times in spans.values())
        beside = ("communication", COPY)
        computing = [times for kind, times in spans.items() if kind not in beside]
        busy, gaps = _union(list(spans.values()))
        compute = _union(computing)[0] if computing else 0.0
        longest = sorted(self._named.items(), key=lambda times: -times[1])[:_LONGEST]
        return Trace(
            span=last - first,
            steps=len(self._steps),
            kernels=self.count,
            seconds={kind: float((b - a).sum()) for kind, (a, b) in spans.items()},
            counts={kind: len(a) for kind, (a, _) in spans.items()},
            collectives=self._collectives,
            longest=dict(longest),
            compute=compute,
            exposed=busy - compute,
            idle=last - first - busy,
            gaps=gaps,
        )


_MOST_NAMES, _LONGEST = 20_000, 5


@lru_cache(_MOST_NAMES)
def class_of(name: str) -> str:
    """The class of a kernel by its name."""
    return next((kind for kind, word in _PATTERNS if word.search(name)), OTHER)


_PATTERNS = [(kind, re.compile(word, re.IGNORECASE)) for kind, word in CLASSES]


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < _FOREVER


def _union(spans: list[tuple[Array, Array]]) -> tuple[float, int]:
    """(seconds in which any of them runs, pauses between)."""
    start = np.concatenate([times[0] for times in spans])
    end = np.concatenate([times[1] for times in spans])
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    pause = np.maximum(start[1:] - reach[:-1], 0.0)
    return float(reach[-1] - start[0] - pause.sum()), int((pause > 0).sum())
