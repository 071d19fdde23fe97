"""Files of predictions, which never change once written, and measurements beside them.

A file in docs/record/predictions is named by its day. Its `sha256` is the hash of its
other keys in canonical form: JSON as in RFC 8785 for such values (keys sorted, no blanks, UTF-8),
numbers as texts, so that no writer of JSON formats them in another way. `before` is the hash of the
file before it, so that a file cannot be replaced without all later ones.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from planner import __version__
from planner.error import PlanError
from planner.inputs.tables import csv_text

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs" / "record"
FOLDER = "predictions"
_MEASURED = "measurements.csv"
_REPOSITORY = "docs/record"


@dataclass(frozen=True)
class Measurement:
    """A run of a predicted request in its predicted layout. step_s: seconds per step; peak_gib: GiB
    of the fullest GPU; either may be missing."""

    id: str
    date: str
    step_s: str
    peak_gib: str
    source: str


@dataclass(frozen=True)
class Scored:
    """A prediction, and its measurement where there is one. error: measured over predicted step,
    minus one; held: the step is inside the band."""

    prediction: Mapping[str, Any]
    date: str
    version: str
    measurement: Measurement | None
    error: float | None
    held: bool | None
    peak_error: float | None


def version() -> str:
    """The version of dpplan with its commit."""
    words = ["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    return f"{__version__}+{commit}"


def today() -> str:
    """The date in UTC."""
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()


def canonical(content: Mapping[str, Any]) -> bytes:
    """The bytes that are hashed: everything but the hash itself."""
    rest = {key: value for key, value in content.items() if key != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def sha256(content: Mapping[str, Any]) -> str:
    """Hash of a file of predictions."""
    return hashlib.sha256(canonical(content)).hexdigest()


def files(record: Path = RECORD) -> list[Path]:
    """Files of predictions, oldest first."""
    return sorted((record / FOLDER).glob("*.json"))


def read(path: Path) -> dict[str, Any]:
    """A file of predictions. Raises PlanError for any other file."""
    try:
        content = json.loads(path.read_text("utf-8"))
        known = {entry["id"] for entry in content["predictions"]}
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(str(path), "", f"is not a file of predictions ({error})") from None
    if len(known) < len(content["predictions"]):
        raise PlanError(str(path), "", "has an id twice")
    return dict(content)


def contents(record: Path = RECORD) -> list[dict[str, Any]]:
    """All files of predictions, verified. Raises PlanError for the first one that is not as it was
    written."""
    before = ""
    read_files = []
    for path in files(record):
        content = read(path)
        wrong = (
            f"the hash of its content is {sha256(content)}"
            if content.get("sha256") != sha256(content)
            else f"it names {content['before'] or 'none'} as the hash of the file before it, which"
            f" is {before or 'none'}"
            if content["before"] != before
            else ""
        )
        if wrong:
            stated = str(content.get("sha256", ""))
            raise PlanError(path.name, stated, f"{wrong}; restore the file from the repository")
        before = content["sha256"]
        read_files.append(content)
    return read_files


def add(predictions: list[dict[str, Any]], date: str, version: str, record: Path = RECORD) -> Path:
    """Write the file of a day. Raises PlanError where the day has one, or an id is known."""
    path = record / FOLDER / f"{date}.json"
    if path.exists():
        raise PlanError("date", date, "has a file of predictions, which never changes")
    earlier = contents(record)
    known = {entry["id"] for content in earlier for entry in content["predictions"]}
    for entry in predictions:
        if entry["id"] in known:
            raise PlanError("id", entry["id"], "was predicted before")
    before = earlier[-1]["sha256"] if earlier else ""
    content = {"date": date, "version": version, "before": before, "predictions": predictions}
    text = json.dumps({**content, "sha256": sha256(content)}, indent=1, ensure_ascii=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", "utf-8")
    return path


def measurements(record: Path = RECORD) -> list[Measurement]:
    """Measurements of predictions. Raises PlanError for a line that cannot be one."""
    path = record / _MEASURED
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != [field.name for field in fields(Measurement)]:
            raise PlanError(path.name, str(reader.fieldnames), "are not the columns of a record")
        return [_checked(Measurement(**line)) for line in reader]


def _checked(measured: Measurement) -> Measurement:
    if not (measured.step_s or measured.peak_gib):
        raise PlanError("step_s", measured.id, "is neither measured nor its peak")
    if not measured.source:
        raise PlanError("source", measured.id, "has no source; give the address of its log")
    for name in ("step_s", "peak_gib"):
        text = getattr(measured, name)
        try:
            good = not text or 0 < float(text) < float("inf")
        except ValueError:
            good = False
        if not good:
            raise PlanError(name, text, "is not a positive number")
    return measured


def attach(measured: Measurement, record: Path = RECORD) -> Scored:
    """Add a measurement and score it. Raises PlanError where its id was not predicted, or is
    measured already."""
    known = measurements(record)
    if any(earlier.id == measured.id for earlier in known):
        raise PlanError("id", measured.id, "is measured already")
    score = _score([*known, _checked(measured)], contents(record), measured.id)
    names = [field.name for field in fields(Measurement)]
    lines = (list(asdict(line).values()) for line in (*known, measured))
    (record / _MEASURED).write_text(csv_text(names, lines), "utf-8")
    return score


def _score(
    measured: Iterable[Measurement], written: Iterable[Mapping[str, Any]], wanted: str
) -> Scored:
    for scored in scores(measured, written):
        if scored.prediction["id"] == wanted:
            return scored
    raise PlanError("id", wanted, f"is in no file of {_REPOSITORY}/{FOLDER}")


def scores(measured: Iterable[Measurement], written: Iterable[Mapping[str, Any]]) -> list[Scored]:
    """Every prediction with what came of it."""
    by_id = {line.id: line for line in measured}
    out = []
    for content in written:
        for entry in content["predictions"]:
            line = by_id.get(entry["id"])
            step = float(line.step_s) if line and line.step_s else None
            peak = float(line.peak_gib) if line and line.peak_gib else None
            low, middle, high = (float(entry[name]) for name in ("low_s", "step_s", "high_s"))
            out.append(
                Scored(
                    entry,
                    content["date"],
                    content["version"],
                    line,
                    None if step is None else step / middle - 1,
                    None if step is None else low <= step <= high,
                    None if peak is None else peak / float(entry["peak_gib"]) - 1,
                )
            )
    return out
