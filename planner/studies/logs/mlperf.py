"""MLPerf Training: lines of mllog (mlperf_logging/mllog), whose keys the rules fix."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from planner.studies.logs.contents import MS, Reader, Step, positive

_SAMPLES = ("samples_count", "step", "epoch_num", "first_epoch_num")
_SECONDS = ("train_step_time", "train_step_timing in s", "train_step_timing")
_STATED = {"global_batch_size": "global_batch", "max_sequence_length": "seq_len"}


class Mlperf(Reader):
    """`:::MLLOG {"namespace": "", "time_ms": 1775725581676, "event_type": "POINT_IN_TIME", "key":
    "train_loss", "value": 11.8, "metadata": {"samples_count": 32}}`

    A step is the time between two lines of `train_loss` over the steps between their samples;
    without them, the `tracked_stats` of a submission, else a block between two evaluations.
    """

    TITLE = "MLPerf mllog"
    MARKS: ClassVar = (b":::MLLOG",)

    def __init__(self) -> None:
        super().__init__()
        self._before: tuple[float, float] | None = None  # time (s) and samples of the last line
        self._block: tuple[float, float] | None = None
        self._blocks: list[Step] = []
        self._tracked: list[Step] = []

    def line(self, text: str) -> None:
        try:
            record = json.loads(text[text.index(":::MLLOG") + len(":::MLLOG") :])
        except (ValueError, RecursionError):
            return
        now = positive(str(record.get("time_ms"))) if isinstance(record, dict) else None
        if now is None:
            return
        meta = record.get("metadata")
        self._take(
            str(record.get("key")),
            record.get("value"),
            now * MS,
            _samples(meta if isinstance(meta, Mapping) else {}),
        )

    def _take(self, key: str, value: Any, now: float, samples: float | None) -> None:
        if key in _STATED:
            self.state(_STATED[key], positive(str(value)))
        elif key == "tracked_stats" and isinstance(value, Mapping):
            self._stats(value, samples)
        elif key == "train_loss" and samples is not None:
            self._loss(now, samples)
        elif key == "eval_start":
            self._before = None  # an interval that is not a step
            self.event("evaluation")
        elif key == "block_start" and samples is not None:
            self._block = now, samples
        elif key == "block_stop" and samples is not None and self._block:
            self._between(self._block, (now, samples), self._blocks)

    def _stats(self, value: Mapping[str, Any], samples: float | None) -> None:
        seconds = next((positive(str(value[name])) for name in _SECONDS if name in value), None)
        rate = positive(str(value.get("throughput", "")))
        if seconds is not None:
            at = None if samples is None else int(samples)
            self._tracked.append(Step(number=at, seconds=seconds))
        elif rate is not None:
            self.log.notes.append(f"its own throughput: {rate:,.6g} per second")

    def _loss(self, now: float, samples: float) -> None:
        if self._before:
            self._between(self._before, (now, samples), self.log.steps)
        self._before = now, samples

    def _between(
        self, start: tuple[float, float], end: tuple[float, float], into: list[Step]
    ) -> None:
        batch = self.log.stated.get("global_batch")
        steps = (end[1] - start[1]) / batch if batch else 0.0
        if steps > 0 and end[0] > start[0]:
            seconds = (end[0] - start[0]) / steps
            into.append(Step(number=round(end[1] / batch) if batch else None, seconds=seconds))

    def finish(self) -> None:
        if self._tracked and len(self._tracked) >= len(self.log.steps):
            self.log.steps = self._tracked
        elif self._blocks and not self.log.steps:
            self.log.steps = self._blocks
            self.log.notes.append("its steps are means over blocks between evaluations")


def _samples(meta: Mapping[str, Any]) -> float | None:
    """Samples so far; the first line has none."""
    texts = (str(meta[name]) for name in _SAMPLES if name in meta)
    counted = (0.0 if value in ("0", "0.0") else positive(value) for value in texts)
    return next((value for value in counted if value is not None), None)
