"""Raw records: one JSON object per line, appended as measured, so that a run that dies keeps what
it has and goes on later."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from planner.calibrate.quiet import Sample, is_usual, usual_probe_s, value_of
from planner.specs.error import PlanError

Record = dict[str, Any]
SCHEMA = 1
_VALUES = (
    "samples",
    "when",
    "parts",
    "states",
    "peak_bytes",
    "loss",
    "clock_mhz",
    "power_w",
    "temperature_c",
)


# of messages between ranks the quarter of prompt ones counts: where ranks share cores with the
# threads that serve their messages, one waits for the other's time slice now and then, 4 ms for
# what takes 0.3
PROMPT = 0.25
_MESSAGES = ("collective", "pair")


def key(record: Record) -> str:
    """What was measured, without what came out."""
    return json.dumps({k: v for k, v in record.items() if k not in _VALUES}, sort_keys=True)


def merged(records: Iterable[Record], reference_s: float | None = None) -> list[Record]:
    """One record per case, with the value of its samples over all visits (seconds, spread, kept,
    tried, quiet).

    reference_s: probe of the machine as it usually is, by default that of these records.
    """
    records = list(records)
    usual_s = usual_of(records) if reference_s is None else reference_s
    found: dict[str, Record] = {}
    for record in records:
        if "samples" not in record:
            continue
        name = key(record)
        samples = [Sample(*one) for one in record["samples"]]
        earlier = found.get(name)
        if earlier:
            samples = earlier["all"] + samples
        found[name] = {**record, "all": samples}
    out = []
    for record in found.values():
        value = value_of(record.pop("all"), usual_s, PROMPT if record["kind"] in _MESSAGES else 0.5)
        record.pop("samples")
        out.append({**record, **asdict(value)})
    return out


def usual_of(records: Iterable[Record]) -> float:
    """The usual probe of a whole run, s."""
    probes = [probe for record in records for one in record.get("samples", ()) for probe in one[1:]]
    return usual_probe_s(probes) if probes else float("inf")


def path_of(out: Path) -> Path:
    """The raw records beside a calibration file."""
    return out.with_name(out.name + ".records.jsonl")


def read(path: Path, conditions: Record | None = None) -> list[Record]:
    """Records of an earlier run. A last line that was cut off is dropped; conditions that differ
    are an error.

    Raises PlanError where the file is no record file of this version or was measured under other
    conditions.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError("--out", str(path), f"cannot be read: {error}") from None
    found: list[Record] = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError:
            if number == len(lines):  # the run was killed while it wrote
                break
            raise PlanError(
                "--out", str(path), f"line {number} is no JSON; move the file away to measure anew"
            ) from None
        if not isinstance(record, dict) or "kind" not in record:
            raise PlanError(
                "--out",
                str(path),
                f"line {number} is no record; move the file away to measure anew",
            )
        found.append(record)
    if not found:
        return []
    head = found[0]
    if head.get("kind") != "conditions" or head.get("schema") != SCHEMA:
        raise PlanError(
            "--out", str(path), "holds no records of this version; move it away to measure anew"
        )
    for name, value in (conditions or {}).items():
        if name in _CONDITIONS and head.get(name) != value:
            raise PlanError(
                "--out",
                str(path),
                f"was measured with {name} {head.get(name)!r}, this run has {value!r}; "
                "move it away or choose another --out",
            )
    return found


_CONDITIONS = ("device", "threads", "ranks", "torch")


class Records:
    """Records of one run, appended line by line. Only the rank that owns the file gives a path."""

    def __init__(self, path: Path | None, conditions: Record) -> None:
        self.path = path
        self.all = read(path, conditions) if path else []
        self.samples: dict[str, list[Sample]] = {}
        for record in self.all:
            self._collect(record)
        if path and not self.all:
            self._append(path, {"kind": "conditions", "schema": SCHEMA, **conditions}, "w")
        elif path:  # drop a line that was cut off, or the next one would join it
            _rewrite(path, self.all)

    def _collect(self, record: Record) -> None:
        if "samples" in record:
            self.samples.setdefault(key(record), []).extend(
                Sample(*one) for one in record["samples"]
            )

    def quiet(self, what: Record, usual_s: float) -> int:
        """Quiet samples of a case so far."""
        return sum(is_usual(s.probe_s, usual_s) for s in self.samples.get(key(what), ()))

    def add(self, record: Record) -> None:
        """Append what one visit measured; visits of the same case add up."""
        self.all.append(record)
        self._collect(record)
        if self.path:
            self._append(self.path, record, "a")

    def _append(self, path: Path, record: Record, mode: str) -> None:
        if mode == "w":
            self.all.append(record)
        try:
            with path.open(mode, encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise PlanError(
                "--out",
                str(path),
                f"cannot be written: {error.strerror or error}; what was measured until now "
                "is kept, free space or choose another --out and run again",
            ) from None


def _rewrite(path: Path, records: Iterable[Record]) -> None:
    text = "".join(json.dumps(record) + "\n" for record in records)
    if path.read_text(encoding="utf-8") == text:
        return
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise PlanError(
            "--out", str(path), f"cannot be written: {error.strerror or error}"
        ) from None
