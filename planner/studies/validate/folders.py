"""A folder of recipes with their results as rows of a runs table: launch files of other programs,
and a table that names for each what was measured, or the log that says it."""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.formats.plan import Planned, planned, texts
from planner.inputs.catalog import read_text
from planner.inputs.options import read_options
from planner.inputs.readers import read_toml
from planner.specs.base import PlanError
from planner.specs.options import Options, rows
from planner.specs.options.checked import from_text
from planner.studies.check import check, row
from planner.studies.options import CheckOptions
from planner.studies.runs.cells import Row, Skip
from planner.studies.validate.rows import MAX_TABLE_BYTES, NOTE, REFUSED, REQUIRED, measured
from planner.verbs.estimate import taken

_RUNS = "runs"  # the key of a results.toml that lists them
# of a run; every other name is an option of `dpplan estimate` that no file says, such as gpu, or a
# note of the table's author
_NAMES = ("run_id", "recipe", "log", "step_s", "peak_memory_gib", "memory_kind", "outcome")
_BEYOND = "recipe beyond the columns"
_GIB = 2.0**30
_NEAR = 0.8  # likeness of a mistyped name, by difflib

Entry = Mapping[str, Any]


def read_folder(table: Path) -> list[Row]:
    """The runs that a table of results names. Raises PlanError for an invalid table and for a run
    whose files or results cannot be read; a recipe that cannot be estimated is a row with the
    reason."""
    return [_row(table, number, entry) for number, entry in enumerate(_entries(table), 1)]


def _entries(table: Path) -> Iterator[Entry]:
    text = read_text(table, table.name, MAX_TABLE_BYTES).removeprefix("\ufeff")
    if table.suffix == ".toml":
        yield from _of_toml(table, text)
        return
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        for line in reader:
            if None in line or "recipe" not in line:
                raise PlanError(table.name, reader.line_num, "is not a line of recipe and results")
            yield {
                name.strip(): cell.strip() for name, cell in line.items() if cell and cell.strip()
            }
    except csv.Error as error:
        raise PlanError(table.name, reader.line_num, f"is not a readable CSV: {error}") from None


def _of_toml(table: Path, text: str) -> Iterator[Entry]:
    try:
        document = read_toml(text)
    except ValueError as error:
        raise PlanError(table.name, None, str(error)) from None
    listed = document.pop(_RUNS, None)
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise PlanError(table.name, _RUNS, "must be tables [[runs]], each with its recipe")
    for entry in listed:
        yield {**document, **entry}


def _row(table: Path, number: int, entry: Entry) -> Row:
    where = f"{table.name}, run {number}"
    if not entry.get("recipe"):
        raise PlanError(where, None, "names no recipe: the files that start it, blanks between")
    recipe = entry["recipe"]
    names = recipe if isinstance(recipe, list) else str(recipe).split()
    name = str(entry.get("run_id") or Path(names[0]).stem)
    notes = {f"{NOTE}{key}": str(value) for key, value in entry.items() if _is_note(where, key)}
    named = {*_NAMES, *(key.removeprefix(NOTE) for key in notes)}
    given = {key: _option(where, key, value) for key, value in entry.items() if key not in named}
    request = planned(texts(tuple(str(table.parent / name) for name in names)), given)
    empty = dict.fromkeys(REQUIRED, "") | {"run_id": name, "suite": table.parent.name} | notes
    try:
        if request.missing:
            flags = " and ".join(request.missing)
            raise Skip(f"no file says its {flags}: give a column of that name")
        if request.refused:
            raise Skip(request.refused)
        cells = _measured(table, name, entry, request)
    except (PlanError, Skip) as error:
        return {**empty, REFUSED: str(error)}
    of_table = {"suite": table.parent.name, "source": table.name, "source_ref": names[0]}
    return {**cells, **of_table, **notes}


def _is_note(where: str, name: str) -> bool:
    """Whether a column is a note. Raises PlanError for a name that an option or a column nearly
    has, which is a mistake in typing."""
    known = [*_NAMES, *rows(Options)]
    if name in known:
        return False
    if close := difflib.get_close_matches(name, known, n=1, cutoff=_NEAR):
        remedy = f"is not an option of dpplan estimate; was {close[0]} meant? A note of your own"
        raise PlanError(where, name, f"{remedy} needs a name that is less like it")
    return True


def _option(where: str, name: str, value: Any) -> Any:
    known = rows(Options)
    try:
        typed = isinstance(value, str) and known[name].kind in (bool, int, float)
        return from_text(known[name], value) if typed else value
    except ValueError as error:
        raise PlanError(where, name, str(error)) from None


def _measured(table: Path, name: str, entry: Entry, request: Planned) -> Row:
    """The row of a run with what was measured of it."""
    options = read_options(request.options)
    estimates = taken(options).estimates
    result: Row = {key: str(entry.get(key, "")) for key in _NAMES}
    seconds, peak = measured(result, "step_s"), measured(result, "peak_memory_gib")
    kind = str(entry.get("memory_kind") or "allocated")
    memory = {} if peak is None else {kind: peak * _GIB}
    oom = entry.get("outcome") == "oom"
    if entry.get("log"):
        log = str(table.parent / str(entry["log"]))
        log_file = check(CheckOptions(logs=(log,)), request.options).document.files[0]
        seconds = seconds or (log_file.steps.seconds if log_file.steps else None)
        memory = memory or dict(log_file.memory)
        oom = oom or (seconds is None and bool(log_file.shortages))
    if seconds is None and not memory and not oom:
        raise Skip("has no result: give step_s, peak_memory_gib, outcome oom, or a log")
    cells = row.row_of(options, estimates, seconds, memory, name, oom)
    unread = [n for n, used in request.recipe.arguments.items() if used.use == "not understood"]
    words = [f"argument {''.join(c for c in word if c not in ';=')}" for word in unread]
    words += [_BEYOND] if cells["assumptions"] else []
    return {**cells, "options": ";".join(filter(None, (cells["options"], *words)))}
