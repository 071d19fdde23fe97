"""Curves as Weights & Biases and TensorBoard export them: CSV, one line per step."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from planner.specs.base import PlanError
from planner.studies.logs import nemo_rl, verl
from planner.studies.logs.contents import GIB, MOST_PHASED, MS, Log, MemoryKind, Step, positive
from planner.studies.logs.stream import MOST_LINE, MOST_READ, Pieces

# names of curves, without the run's name, and what they are: a field of Step with the factor to
# base units, or memory. The first that fits counts.
_CURVES: tuple[tuple[str, str, float], ...] = (
    (r"elapsed_time_per_iteration_ms$", "seconds", MS),
    (r"timing_s/step$|timing/train/total_step_time$", "seconds", 1.0),
    (r"iteration[-_]time$|train_step_timing in s$|time_metrics/end_to_end\(s\)$", "seconds", 1.0),
    (r"(?:perf|throughput|train)/(?:step_time|step|iter(?:ation)?_time)$", "seconds", 1.0),
    (r"step_time(?:_s|_seconds)?$", "seconds", 1.0),
    (r"time_metrics/data_loading\(s\)$|batch-generator$", "loading_s", 1.0),
    (
        r"throughput\(tps\)$|perf/throughput$"
        r"|tokens_per_(?:sec|second)_per_gpu$|device/tokens_per_sec$",
        "tokens_per_gpu",
        1.0,
    ),
    (r"tokens_per_(?:sec|second)$|batches/tokens_per_sec$", "tokens_per_s", 1.0),
    (r"samples_per_(?:sec|second)$", "samples_per_s", 1.0),
    (r"tflops(?:_per_(?:sec_per_)?gpu)?$|throughput$", "tflops", 1.0),
    (r"memory/max_reserved\(GiB\)$|max_memory_reserved_gb$", "reserved", GIB),
    (r"memory/max_active\(GiB\)$|max_(?:memory_)?allocated_gb$", "allocated", GIB),
)
# timers of steps of reinforcement learning behind these words
_TIMERS = {verl.TIME: verl.PHASES, nemo_rl.TIME: nemo_rl.PHASES}
_MEMORY: dict[str, MemoryKind] = {"reserved": "reserved", "allocated": "allocated"}
_CLOCK = ("_runtime", "Relative Time (Process)", "_timestamp", "Wall time")
_AT = ("Step", "_step", "train/global_step", "trainer/global_step", "global_step")


def curve(name: str) -> tuple[str, float] | None:
    """Meaning of a column or a tag; None if it is not read."""
    tail = name.rpartition(" - ")[2].strip()  # "run - metric", as charts of wandb name columns
    curves = (entry for entry in _CURVES if re.search(entry[0], tail, re.IGNORECASE))
    return next(((kind, factor) for _, kind, factor in curves), None)


class Table:
    """A CSV of curves. TITLE: whose; HEAD: how its header begins."""

    TITLE: ClassVar[str] = ""
    HEAD: ClassVar[re.Pattern[bytes]]

    @classmethod
    def is_one(cls, head: bytes) -> bool:
        """Whether a file begins as such a table."""
        return bool(cls.HEAD.match(head.removeprefix(b"\xef\xbb\xbf")))

    @classmethod
    def read(cls, source: Pieces, path: Path, field: str) -> Log:
        """The curves that are steps. Raises PlanError where the table has none."""
        log = Log(title=cls.TITLE)
        try:
            lines = _rows(source)
            cls._fill(log, next(lines), lines, path)
        except csv.Error as error:
            raise PlanError(field, str(path), f"is not a readable CSV: {error}") from None
        if not log.steps:
            named = ", ".join(("step time", "tokens per second", "samples per second"))
            remedy = f"has no column of {named}, nor a clock beside the steps, in any known name"
            raise PlanError(field, str(path), remedy)
        log.partly = source.partly
        return log

    @classmethod
    def _fill(cls, log: Log, header: list[str], lines: Iterator[list[str]], path: Path) -> None:
        raise NotImplementedError


class Wandb(Table):
    """A chart's CSV, `"Step","run - throughput(tps)"`, or a whole history, `_step,_runtime,...`"""

    TITLE = "Weights & Biases CSV"
    HEAD = re.compile(rb'"?(?:Step|_step|_runtime|_timestamp|Relative Time \(Process\))"?,')

    @classmethod
    def _fill(cls, log: Log, header: list[str], lines: Iterator[list[str]], path: Path) -> None:
        columns = {i: meaning for i, name in enumerate(header) if (meaning := _column(name))}
        at = next((header.index(name) for name in _AT if name in header), None)
        clock = next((header.index(name) for name in _CLOCK if name in header), None)
        timed = any(kind not in _MEMORY for kind, _ in columns.values())
        if timed:
            _take(log, lines, columns, at, _timers(header))
        elif at is not None and clock is not None:
            _by_clock(log, lines, at, clock)


class TensorBoard(Table):
    """One scalar, `Wall time,Step,Value`, in a file that has the name of its tag."""

    TITLE = "TensorBoard CSV"
    HEAD = re.compile(rb'"?Wall time"?,"?Step"?,"?Value"?')

    @classmethod
    def _fill(cls, log: Log, header: list[str], lines: Iterator[list[str]], path: Path) -> None:
        tag = path.stem.rpartition("tag-")[2]
        # slashes and brackets of a tag are underscores in the name of its file
        meaning = curve(tag) or curve(tag.replace("_", "/", 1)) or curve(f"{tag.rstrip('_')}")
        if meaning and meaning[0] not in _MEMORY:
            _take(log, lines, {2: meaning}, 1)
        else:
            _by_clock(log, lines, 1, 0)


def _timers(header: list[str]) -> dict[int, str]:
    """Columns of timers, and the phases of `dpplan rl` that they are."""
    tails = [name.rpartition(" - ")[2].strip() for name in header]
    return {
        i: named[tail.removeprefix(before)]
        for i, tail in enumerate(tails)
        for before, named in _TIMERS.items()
        if tail.startswith(before) and tail.removeprefix(before) in named
    }


def _column(name: str) -> tuple[str, float] | None:
    return None if name.endswith(("__MIN", "__MAX")) else curve(name)


def _rows(source: Pieces) -> Iterator[list[str]]:
    def lines() -> Iterable[str]:
        for piece in source.pieces():
            for line in piece.split(b"\n"):
                yield line[:MOST_LINE].decode("utf-8-sig", "replace")

    for i, row in enumerate(csv.reader(lines())):
        if i > MOST_READ:
            source.partly = f"its first {MOST_READ:,} lines"
            return
        if row:
            yield [cell.strip() for cell in row]


def _take(
    log: Log,
    lines: Iterator[list[str]],
    columns: dict[int, tuple[str, float]],
    at: int | None,
    timers: Mapping[int, str] = MappingProxyType({}),
) -> None:
    for row in lines:
        values: dict[str, Any] = {}
        for i, (kind, factor) in columns.items():
            value = positive(row[i]) if i < len(row) else None
            if value is not None and kind not in values:
                values[kind] = value * factor
        for name, kind_ in _MEMORY.items():
            if name in values:
                log.keep_peak(kind_, values.pop(name))
        if set(values) - {"loading_s", "tflops"}:
            parts = _phases(row, timers) if len(log.steps) < MOST_PHASED else ()
            log.steps.append(Step(number=_whole(row, at), phases=parts, **values))


def _phases(row: list[str], timers: Mapping[int, str]) -> tuple[tuple[str, float], ...]:
    phases: dict[str, float] = {}
    for i, name in timers.items():
        if i < len(row) and (seconds := positive(row[i])) is not None:
            phases[name] = phases.get(name, 0.0) + seconds
    return tuple(phases.items())


def _by_clock(log: Log, lines: Iterator[list[str]], at: int, clock: int) -> None:
    """Steps from the time between two lines over the steps between them."""
    before: tuple[int, float] | None = None
    for row in lines:
        step, now = _whole(row, at), positive(row[clock]) if clock < len(row) else None
        if step is None or now is None:
            continue
        if before and step > before[0] and now > before[1]:
            log.steps.append(Step(number=step, seconds=(now - before[1]) / (step - before[0])))
        before = step, now
    log.notes.append("its steps are the time between the lines that were logged")


def _whole(row: list[str], at: int | None) -> int | None:
    """The number of a step, 0 included."""
    if at is None or at >= len(row):
        return None
    return 0 if row[at] in _FIRST else None if (n := positive(row[at])) is None else int(n)


_FIRST = ("0", "0.0")
