"""Raw records: one JSON object per line, appended as measured, so that a run that dies keeps what
it has and goes on later."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from io import FileIO
from pathlib import Path
from typing import Any

from planner.calibrate.cases import Case
from planner.calibrate.kinds import wrong
from planner.calibrate.quiet import Sample, agreed, moments, usual_probe_s, value_of
from planner.error import PlanError
from planner.inputs import catalog

Record = dict[str, Any]
SCHEMA = 2
_DIGITS = 4  # of the share that others had
MOST_BYTES = 200_000_000  # of records: a thorough run on many ranks writes some 10 MB
_VALUES = (
    "samples",
    "others",
    "when",
    "parts",
    "states",
    "peak_bytes",
    "loss",
    "clock_mhz",
    "power_w",
    "temperature_c",
)


_MERGED = ("seconds", "spread", "kept", "tried", "quiet", "why")  # the fields of a Value
_NO_LABEL = (*_VALUES, *_MERGED, "moments", "others", "kind", "held_out", "used_in_fit", "compiled")


# of messages between pairs, which only name the slow ones, the quarter of prompt ones counts: one
# waits for another program's time slice now and then, 4 ms for what takes 0.3
PROMPT = 0.25
_MESSAGES = ("pair",)


def _share_of(record: Record) -> float:
    """The quantile of its samples that is a case's value."""
    return PROMPT if record["kind"] in _MESSAGES else 0.5


def key(record: Record) -> str:
    """The measured case, without its result."""
    return json.dumps({k: v for k, v in record.items() if k not in _VALUES}, sort_keys=True)


def label(record: Record) -> str:
    """A case in one line: what was measured, its numbers as name=value."""
    if record["kind"] == "step":
        return f"step of {Case(**record['case']).name}"
    numbers = [
        str(v) if isinstance(v, str) else f"{k}={v}"
        for k, v in record.items()
        if k not in _NO_LABEL
    ]
    return " ".join([record["kind"], *numbers])


def merged(records: Iterable[Record], reference_s: float | None = None) -> list[Record]:
    """One record per case, with the value of its samples over all visits (seconds, spread, kept,
    tried, quiet, why), the middle of each visit (moments) and the CPU use of other programs then.

    reference_s: the usual probe of the machine, by default from these records.
    """
    records = list(records)
    usual_s = usual_of(records) if reference_s is None else reference_s
    by_case: dict[str, Record] = {}
    for record in records:
        if "samples" not in record:
            continue
        name = key(record)
        earlier = by_case.get(name, {"all": []})
        by_case[name] = {**record, "all": [*earlier["all"], samples_of(record)]}
    out = []
    for record in by_case.values():
        visits = record.pop("all")
        every = [sample for visit in visits for sample in visit]
        value = value_of(every, usual_s, _share_of(record))
        record.pop("samples")
        several = {
            "moments": moments(visits, usual_s),
            "others": [visit[0].others for visit in visits if visit],
        }
        out.append({**record, **asdict(value), **several})
    return out


def visit(samples: Sequence[Sample]) -> Record:
    """One visit of a case as a line of the records."""
    return {
        "samples": [[s.seconds, s.before_s, s.after_s] for s in samples],
        "others": round(samples[0].others, _DIGITS),
        "when": round(time.time(), 1),
    }


def samples_of(record: Record) -> list[Sample]:
    """The samples of a line of the records."""
    others = record.get("others", 0.0)
    return [
        Sample(seconds, before_s, after_s, others)
        for seconds, before_s, after_s in record["samples"]
    ]


def usual_of(records: Iterable[Record]) -> float:
    """The usual probe of a whole run, s."""
    probes = [
        probe for record in records for sample in record.get("samples", ()) for probe in sample[1:]
    ]
    return usual_probe_s(probes) if probes else float("inf")


def path_of(out: Path) -> Path:
    """The raw records beside a calibration file, with symbolic links resolved."""
    out = Path(os.path.realpath(out))
    return out.with_name(out.name + ".records.jsonl")


def read(path: Path, conditions: Record | None = None) -> list[Record]:
    """Records of an earlier run. An incomplete last line is dropped; different conditions are an
    error.

    Raises PlanError if the file has another format or version, holds impossible measurements, or
    was measured under other conditions.
    """
    if not path.exists():
        return []
    lines = catalog.read_text(path, "--out", MOST_BYTES).removesuffix("\n").split("\n")
    records: list[Record] = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines):  # the run was killed while it wrote
                break
            raise _foreign(path, f"line {number} is not JSON") from None
        why = _no_head(record) if number == 1 else wrong(record)
        if why is not None:
            raise _foreign(path, f"line {number}: {why}")
        records.append(record)
    for name, value in (conditions or {}).items():
        if records and name in _CONDITIONS and records[0].get(name) != value:
            raise PlanError(
                "--out",
                str(path),
                f"was measured with {name} {records[0].get(name)!r}, this run has {value!r}; "
                "move it away or choose another --out",
            )
    return records


_CONDITIONS = ("device", "threads", "ranks", "torch")


def _no_head(record: Any) -> str | None:
    """The error of the first line, which has where and how the others were measured."""
    if not isinstance(record, dict) or "kind" not in record:
        return "is not a record"
    if record["kind"] != "conditions" or record.get("schema") != SCHEMA:
        return "the file holds no records of this version"
    return None


def _foreign(path: Path, why: str) -> PlanError:
    return PlanError("--out", str(path), f"{why}; move the file away to measure again")


def locked(path: Path) -> FileIO:
    """The records, opened and locked by this process until it ends or closes them. Raises PlanError
    if another run has the lock."""
    if path.exists() and not path.is_file():
        raise PlanError("--out", str(path), "holds raw records, and is not a file; move it away")
    try:
        file = FileIO(path, "a+")
    except (OSError, ValueError) as error:
        raise _unwritten(path, error) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise PlanError(
            "--out",
            str(path),
            "is being written by another run; wait for its end, or choose another --out",
        ) from None
    except OSError:
        pass  # a file system without locks
    return file


def _unwritten(path: Path, error: OSError | ValueError) -> PlanError:
    why = error.strerror if isinstance(error, OSError) else error
    return PlanError(
        "--out",
        str(path),
        f"cannot be written: {why}; what was measured until now is kept, free space or choose"
        " another --out and run again",
    )


class Records:
    """Records of one run, appended line by line. Only the rank that owns the file gives a path.

    anew: drop records of an earlier run.
    """

    def __init__(self, path: Path | None, conditions: Record, anew: bool = False) -> None:
        self.path = path
        self.all: list[Record] = []
        self.samples: dict[str, list[Sample]] = {}
        self.file = locked(path) if path else None
        if path:
            earlier = read(path, None if anew else conditions)  # or the file is somebody else's
            self.all = [] if anew else earlier
        for record in self.all:
            self._collect(record)
        if path and self.file:
            _trim(self.file, path, len(self.all))
            if not self.all:
                self.add({"kind": "conditions", "schema": SCHEMA, **conditions})

    def _collect(self, record: Record) -> None:
        if "samples" in record:
            self.samples.setdefault(key(record), []).extend(samples_of(record))

    def quiet(self, record: Record, usual_s: float) -> int:
        """Quiet samples of a case so far that agree with each other; 0 where they do not."""
        return agreed(self.samples.get(key(record), ()), usual_s, _share_of(record))

    def add(self, record: Record) -> None:
        """Append what one visit measured; visits of the same case add up."""
        self.all.append(record)
        self._collect(record)
        if self.path and self.file:
            _append(self.file, self.path, json.dumps(record) + "\n")


def _trim(file: FileIO, path: Path, lines: int) -> None:
    """Keep the first lines: the next one would join one that was cut off."""
    content = path.read_bytes()
    size = sum(len(line) + 1 for line in content.split(b"\n")[:lines])
    if size > len(content):
        _append(file, path, "\n")
    else:
        os.ftruncate(file.fileno(), size)


def _append(file: FileIO, path: Path, text: str) -> None:
    left = memoryview(text.encode())
    try:
        while left:
            left = left[file.write(left) :]
        os.fsync(file.fileno())
    except OSError as error:
        raise _unwritten(path, error) from None
