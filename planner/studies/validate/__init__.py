"""The verb `validate`: measured runs against predictions, each estimated only from its row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the planner starts without this room: `planner.api` names it in every command
    from planner.studies.documents.validate import Validation
    from planner.verbs.workers import Progress

__all__ = ["validate", "write_plot", "write_runs"]


def validate(
    paths: Sequence[Path] = (),
    calibration: str | None = None,
    suites: Sequence[str] = (),
    *,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Validation:
    """Predicted against measured for these CSV files, all CSV files of these folders, or by default
    the shipped runs. Raises PlanError for a file that is not a table and for an unknown suite.

    suites: only these; jobs: processes that share the predictions.
    """
    from planner.inputs.calibration import read_calibration
    from planner.studies.validate.files import read_all
    from planner.studies.validate.predict import validated

    rows = read_all(paths, suites)
    measured_node = read_calibration(calibration) if calibration else None
    return validated(rows, measured_node, jobs, progress)[0]


def write_runs(document: Validation, path: Path) -> None:
    """Write one CSV line per row: predicted, measured, errors, components; the file appears whole
    or not at all."""
    from planner.studies.validate.files import run_lines

    _write(path, "--csv", run_lines(document))


def write_plot(document: Validation, path: Path) -> None:
    """Write predicted against measured as one HTML page that needs no network; the file appears
    whole or not at all."""
    from planner.studies.views.validate_figure import view
    from planner.views.page import page

    _write(path, "--plot", page(view(document), option="--plot"))


def _write(path: Path, option: str, text: str) -> None:
    from planner.inputs.files import write_text

    write_text(path, option, text)
