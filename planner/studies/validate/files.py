"""Files of validation: the measured runs that ship or that a user names, and what is written, whole
or not at all."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.inputs.tables import csv_text
from planner.specs.base import PlanError
from planner.studies.documents.validate import Validation
from planner.studies.runs.cells import Row
from planner.studies.validate.rows import SHIPPED, read_tables

_TABLES = ("results.csv", "results.toml")  # of a folder of recipes
_RUN_COLUMNS = (
    "run_id",
    "suite",
    "gpu",
    "gpus",
    "stack",
    "model",
    "parameters",
    "tier",
    "group",
    "layout",
    "outcome",
    "predicted_step_s",
    "measured_step_s",
    "time_error",
    "low_step_s",
    "high_step_s",
    "repeat_deviation",
    "predicted_peak_gib",
    "measured_peak_gib",
    "memory_error",
    "memory_kind",
    "predicted_fits",
    "fit_chance",
    "not_expressed",
    "not_printed",
    "command",
)


def read_all(paths: Sequence[Path], suites: Sequence[str] = ()) -> list[Row]:
    """Rows of these CSV files, of all CSV files of these folders or of the recipes with results in
    them, of the shipped ones where none is named.

    suites: only these. Raises PlanError for a file that is not a table and for a suite that no row
    belongs to.
    """
    files: list[Path] = []
    recipes: list[Row] = []
    for path in paths or (SHIPPED,):
        is_folder = os.path.isdir(path)  # an impossible name is not a folder; reading it says why
        if is_folder and (table := _table_of(path)):
            from planner.studies.validate.folders import (
                read_folder,  # loads what reads launch files
            )

            recipes += read_folder(table)
        else:
            files += sorted(path.glob("*.csv")) if is_folder else [path]
    if not (files or recipes):
        remedy = f"holds no CSV file, and no {' or '.join(_TABLES)} of recipes"
        raise PlanError("RUNS.csv", str(paths[0]) if paths else str(SHIPPED), remedy)
    rows = [*read_tables(files), *recipes]
    known = sorted({row["suite"] for row in rows})
    for name in suites:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
            suggestion = f"did you mean {', '.join(close)}? " if close else ""
            listed = f"the suites are {', '.join(known)}" if known else "the tables have no row"
            raise PlanError("--suite", name, f"no run belongs to it; {suggestion}{listed}")
    return [row for row in rows if not suites or row["suite"] in suites]


def _table_of(folder: Path) -> Path | None:
    """The table of results of a folder of recipes, None where it has none."""
    return next((path for name in _TABLES if (path := folder / name).is_file()), None)


def run_lines(document: Validation) -> str:
    """CSV of all rows, one line each: predicted, measured, errors, step by component; of skipped
    ones the reason."""
    runs = document.rows
    components = list(dict.fromkeys(name for run in runs for name in run.components))
    notes = list(dict.fromkeys(name for run in runs for name in run.notes))
    lines = [
        [
            *(getattr(run, name) for name in _RUN_COLUMNS),
            *(run.components.get(name) for name in components),
            *(run.notes.get(name) for name in notes),
            None,
        ]
        for run in runs
    ]
    empty = [None] * (len(_RUN_COLUMNS) - 2 + len(components) + len(notes))
    lines += [[run.run_id, run.suite, *empty, run.reason] for run in document.skipped]
    seconds = (f"{name}_s" for name in components)
    return _table([*_RUN_COLUMNS, *seconds, *notes, "skipped"], lines)


def _table(header: list[str], lines: list[list[Any]]) -> str:
    return csv_text(header, [[_cell(value) for value in line] for line in lines])


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return f"{value:.6g}" if isinstance(value, float) else value
