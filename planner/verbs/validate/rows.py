"""Rows of a runs table: reading the CSV, and the cells of a row with clear reasons where one cannot
be read."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import get_args

from planner.inputs.catalog import read_text
from planner.specs.base import PlanError
from planner.specs.documents.validate import Outcome

SHIPPED = Path(__file__).parents[2] / "data" / "runs"
FRESH = SHIPPED.parent / "fresh"  # runs that no number was chosen with

Row = dict[str, str]

REQUIRED = (
    "run_id",
    "suite",
    "gpu",
    "gpus",
    "stack",
    "layers",
    "hidden",
    "heads",
    "seq_len",
    "tp",
    "pp",
    "dp",
    "global_batch",
)

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
MAX_TABLE_BYTES = 8_000_000


def read_rows(path: Path) -> list[Row]:
    """Rows of a runs table. Raises PlanError for a file that is none."""
    field, name = "RUNS.csv", str(path)
    text = read_text(path, field, MAX_TABLE_BYTES).removeprefix("\ufeff")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        for needed in REQUIRED:
            if needed not in header:
                raise PlanError(
                    field, name, f"has no column {needed!r}; the columns are in docs/validation.md"
                )
        for column in header:
            if header.count(column) > 1:
                raise PlanError(field, name, f"has the column {column!r} twice")
        rows = []
        for cells in reader:
            if len(cells) > len(header):
                raise PlanError(
                    field, name, f"line {reader.line_num} has more cells than the header"
                )
            if cells:
                rows.append(
                    dict(
                        zip(
                            header,
                            [c.strip() for c in cells] + [""] * (len(header) - len(cells)),
                            strict=True,
                        )
                    )
                )
        return rows
    except csv.Error as error:
        raise PlanError(
            field, name, f"is no readable CSV (line {reader.line_num}: {error})"
        ) from None


class Skip(ValueError):
    """A row that cannot be expressed, with the reason."""


def number(row: Row, name: str, default: float | None = None) -> float:
    text = row.get(name, "")
    if text == "":
        if default is None:
            raise Skip(f"{name} is empty")
        return default
    try:
        value = float(text)
    except ValueError:
        raise Skip(f"{name} is {text!r}, no number") from None
    if not math.isfinite(value) or value < 0:
        raise Skip(f"{name} is {text!r}, out of range")
    return value


def whole(row: Row, name: str, default: float | None = None, minimum: int = 0) -> int:
    value = number(row, name, default)
    if value != int(value):
        raise Skip(f"{name} is {value}, no whole number")
    if value < minimum:
        raise Skip(f"{name} is {value:g}; it must be at least {minimum}")
    return int(value)


def outcome_of(row: Row) -> Outcome:
    """Whether the run ran; an empty cell is one that did."""
    outcome = row.get("outcome", "") or "ok"
    if outcome not in OUTCOMES:
        raise Skip(f"outcome is {outcome!r}; it must be one of {', '.join(OUTCOMES)}")
    return outcome


def measured(row: Row, name: str) -> float | None:
    value = number(row, name, 0.0)
    if value == 0 and row.get(name, ""):
        raise Skip(
            f"{name} is {row[name]!r}; a measurement is positive, and what is not known is left"
            " empty"
        )
    return value or None


def options_of(row: Row) -> dict[str, str]:
    pairs = (part.partition("=") for part in row.get("options", "").split(";") if part)
    return {key.strip(): value.strip() or "1" for key, _, value in pairs}
