"""Rows of a runs table: reading the CSV, and the cells of a row with clear reasons where one cannot
be read."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from planner.inputs.catalog import read_text
from planner.specs.base import PlanError
from planner.studies.documents.validate import Outcome
from planner.studies.runs.cells import Row, Skip, number

SHIPPED = Path(__file__).parent.parent / "data" / "runs"
FRESH = SHIPPED.parent / "fresh"  # runs that no number was chosen with

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
MOST_COLUMNS = 200  # of a table; docs/validation.md has about 50
MOST_RUNS = 2_500  # that one command estimates: about 10 ms each
PLANNED = "planned"  # outcome of a row whose result is to be filled in
REFUSED = "refused"  # why the recipe of a row allows no estimate
NOTE = "note: "  # prefix of a user's own columns, which are not part of the recipe
_FIELD = "RUNS.csv"


def read_tables(paths: Iterable[Path]) -> list[Row]:
    """Rows of these runs tables. Raises PlanError for any other file, and for more runs than one
    command estimates."""
    rows: list[Row] = []
    for path in paths:
        rows += itertools.islice(read_rows(path), MOST_RUNS + 1 - len(rows))
        if len(rows) > MOST_RUNS:
            raise PlanError(
                _FIELD,
                str(path),
                f"ends beyond the {MOST_RUNS:,} runs that one command estimates; divide the table",
            )
    return rows


def read_rows(path: Path) -> Iterator[Row]:
    """Rows of a runs table, one at a time. Raises PlanError for any other file."""
    name = str(path)
    text = read_text(path, _FIELD, MAX_TABLE_BYTES).removeprefix("\ufeff")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        _check_header(header, name)
        yield from _rows(reader, header, name)
    except csv.Error as error:
        raise PlanError(
            _FIELD, name, f"is not a readable CSV (line {reader.line_num}: {error})"
        ) from None


def _check_header(header: Sequence[str], name: str) -> None:
    """Refuse a header that is not of a runs table."""
    if len(header) > MOST_COLUMNS:
        raise PlanError(
            _FIELD,
            name,
            f"has {len(header):,} columns; at most {MOST_COLUMNS} are read, those of"
            " docs/validation.md",
        )
    for needed in REQUIRED:
        if needed not in header:
            raise PlanError(
                _FIELD, name, f"has no column {needed!r}; the columns are in docs/validation.md"
            )
    for column in header:
        if header.count(column) > 1:
            raise PlanError(_FIELD, name, f"has the column {column!r} twice")


def _rows(reader: Any, header: Sequence[str], name: str) -> Iterator[Row]:
    """The rows below the header, in one dictionary each; cells that a line lacks are empty."""
    for cells in reader:
        if len(cells) > len(header):
            raise PlanError(_FIELD, name, f"line {reader.line_num} has more cells than the header")
        if cells:
            filled = [cell.strip() for cell in cells] + [""] * (len(header) - len(cells))
            yield dict(zip(header, filled, strict=True))


RESULTS = ("step_s", "peak_memory_gib")


def outcome_of(row: Row) -> Outcome:
    """Whether the run ran; an empty cell is one that did, and a planned one with a result, too."""
    outcome = row.get("outcome", "") or "ok"
    if outcome == PLANNED:
        if not any(row.get(name, "") for name in RESULTS):
            raise Skip(f"no result yet: fill in {' or '.join(RESULTS)}, or the outcome oom")
        return "ok"
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
