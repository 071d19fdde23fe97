"""A folder of recipes with their results as rows of a runs table: launch files of other programs,
and a table that names for each what was measured, or the log that says it."""

from __future__ import annotations

import csv
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
from planner.studies.validate.rows import MAX_TABLE_BYTES, REFUSED, REQUIRED, measured
from planner.verbs.estimate import taken

_RUNS = "runs"  # the key of a results.toml that lists them
# of a run; every other name is an option of `dpplan estimate` that no file says, such as gpu
_NAMES = ("run_id", "recipe", "log", "step_s", "peak_memory_gib", "memory_kind", "outcome")
_BEYOND = "recipe beyond the columns"
_GIB = 2.0**30

Entry = Mapping[str, Any]


def read_folder(table: Path) -> list[Row]:
    """The runs that a table of results names. Raises PlanError for an invalid table and for a run
    whose files or results cannot be read; a recipe that cannot be estimated is a row with the
    reason."""
    return [_row(table, number, one) for number, one in enumerate(_entries(table), 1)]


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
            yield {name.strip(): one.strip() for name, one in line.items() if one and one.strip()}
    except csv.Error as error:
        raise PlanError(table.name, reader.line_num, f"is not a readable CSV: {error}") from None


def _of_toml(table: Path, text: str) -> Iterator[Entry]:
    try:
        held = read_toml(text)
    except ValueError as error:
        raise PlanError(table.name, None, str(error)) from None
    listed = held.pop(_RUNS, None)
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise PlanError(table.name, _RUNS, "must be tables [[runs]], each with its recipe")
    for one in listed:
        yield {**held, **one}


def _row(table: Path, number: int, entry: Entry) -> Row:
    where = f"{table.name}, run {number}"
    if not entry.get("recipe"):
        raise PlanError(where, None, "names no recipe: the files that start it, blanks between")
    asked = entry["recipe"]
    names = asked if isinstance(asked, list) else str(asked).split()
    name = str(entry.get("run_id") or Path(names[0]).stem)
    given = {one: _option(where, one, value) for one, value in entry.items() if one not in _NAMES}
    found = planned(texts(tuple(str(table.parent / one) for one in names)), given)
    empty = dict.fromkeys(REQUIRED, "") | {"run_id": name, "suite": table.parent.name}
    try:
        if found.missing:
            flags = " and ".join(found.missing)
            raise Skip(f"no file says its {flags}: give a column of that name")
        if found.refused:
            raise Skip(found.refused)
        cells = _measured(table, name, entry, found)
    except (PlanError, Skip) as error:
        return {**empty, REFUSED: str(error)}
    return {**cells, "suite": table.parent.name, "source": table.name, "source_ref": names[0]}


def _option(where: str, name: str, value: Any) -> Any:
    known = rows(Options)
    if name not in known:
        remedy = f"is not an option of dpplan estimate, and none of {', '.join(_NAMES)}"
        raise PlanError(where, name, remedy)
    try:
        typed = isinstance(value, str) and known[name].kind in (bool, int, float)
        return from_text(known[name], value) if typed else value
    except ValueError as error:
        raise PlanError(where, name, str(error)) from None


def _measured(table: Path, name: str, entry: Entry, found: Planned) -> Row:
    """The row of a run with what was measured of it."""
    options = read_options(found.options)
    one = taken(options).estimates
    result: Row = {key: str(entry.get(key, "")) for key in _NAMES}
    seconds, peak = measured(result, "step_s"), measured(result, "peak_memory_gib")
    kind = str(entry.get("memory_kind") or "allocated")
    memory = {} if peak is None else {kind: peak * _GIB}
    oom = entry.get("outcome") == "oom"
    if entry.get("log"):
        log = str(table.parent / str(entry["log"]))
        said = check(CheckOptions(logs=(log,)), found.options).document.files[0]
        seconds = seconds or (said.steps.seconds if said.steps else None)
        memory = memory or dict(said.memory)
        oom = oom or (seconds is None and bool(said.shortages))
    if seconds is None and not memory and not oom:
        raise Skip("has no result: give step_s, peak_memory_gib, outcome oom, or a log")
    cells = row.row_of(options, one, seconds, memory, name, oom)
    unread = [n for n, used in found.recipe.arguments.items() if used.use == "not understood"]
    words = [f"argument {''.join(c for c in one if c not in ';=')}" for one in unread]
    words += [_BEYOND] if cells["assumptions"] else []
    return {**cells, "options": ";".join(filter(None, (cells["options"], *words)))}
