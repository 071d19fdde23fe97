"""The verb `validate`: measured runs against predictions, each estimated only from its row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the planner starts without this room: `planner.api` names it in every command
    from planner.studies.documents.validate import Validation
    from planner.verbs.workers import Progress

__all__ = ["validate", "write_plot", "write_residuals", "write_runs"]


def validate(
    paths: Sequence[Path] = (),
    calibration: str | None = None,
    suites: Sequence[str] = (),
    *,
    coverage: bool = False,
    ablations: bool = False,
    cross_validation: bool = False,
    unseen: bool = False,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Validation:
    """Predicted against measured for these CSV files, all CSV files of these folders, or by default
    the shipped runs. Raises PlanError for a file that is not a table and for an unknown suite.

    suites: only these; coverage: also how much the shipped bands hold; ablations: also errors with
    each mechanism switched off; cross_validation: also errors of held-out models, GPU counts and
    suites; unseen: each row also by shared numbers fitted on all other suites, which
    cross-validation implies; jobs: processes that share the predictions.
    """
    from planner.inputs.calibration import read_calibration
    from planner.specs.document import changed
    from planner.studies.validate import ablation, bands, crossval, fit, memory, worth
    from planner.studies.validate.errors import complete
    from planner.studies.validate.files import read_all
    from planner.studies.validate.predict import has_time, validated, with_unseen

    rows = read_all(paths, suites)
    measured_node = read_calibration(calibration) if calibration else None
    document, kept = validated(rows, measured_node, jobs, progress)
    shipped = not (paths or suites or calibration)
    if cross_validation or unseen:
        timed = [row for row, run in zip(kept, document.rows, strict=True) if has_time(run)]
        found = fit.cases(timed, measured_node)
        seconds: Sequence[float | None]
        if cross_validation:
            crossed = crossval.cross_validate(found, document.summary.noise.mean or 0.0)
            document = changed(document, cross_validation=crossed)
            seconds = [row.predicted_step_s["suites"] for row in crossed.rows]
        else:
            seconds = crossval.without_each_suite(found)[0].tolist()
        document = with_unseen(document, seconds)
    if coverage:
        document = changed(
            document,
            coverage=bands.coverage(document.rows, shipped=shipped),
            fit_coverage=memory.coverage(document.rows),
        )
    if ablations:
        pairs = zip(kept, document.rows, strict=True)
        whole = [row for row, run in pairs if complete(run) and not run.phases]
        document = changed(
            document,
            ablations=ablation.ablations(whole, measured_node),
            worths=worth.worths(whole, measured_node),
        )
    return document


def write_residuals(document: Validation, path: Path) -> None:
    """Write measured over predicted per run, by numbers fitted without its suite if the document
    was made with `unseen`."""
    from planner.studies.validate.files import residual_lines

    _write(path, "--residuals", residual_lines(document))


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
