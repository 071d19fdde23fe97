"""`dpplan validate`: measured runs against predictions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from planner.inputs import catalog
from planner.report.layout import Report


def validate(
    paths: Sequence[Path] = (),
    calibration: str | None = None,
    suites: Sequence[str] = (),
    *,
    coverage: bool = False,
    ablations: bool = False,
    cross_validation: bool = False,
    unseen: bool = False,
) -> Report:
    """Predicted against measured for these CSV files, all CSV files of these folders, or by default
    the shipped runs.

    suites: only these; coverage: also how much the bands hold; ablations: also errors with each
    mechanism switched off;
    cross_validation: also errors of held-out models, GPU counts and suites; unseen: each row also
    predicted without its suite.
    """
    from planner.verbs import validate as validation

    return validation.validate(
        paths,
        calibration,
        suites,
        with_coverage=coverage,
        with_ablations=ablations,
        with_cross_validation=cross_validation,
        with_unseen=unseen,
    )


def write_residuals(document: Report, path: Path) -> None:
    """Write measured over predicted per run, by numbers fitted without its suite if the document
    was made with `unseen`."""
    from planner.verbs import validate as validation

    catalog.write_text(path, "--residuals", validation.residual_lines(document))


def write_runs(document: Report, path: Path) -> None:
    """Write one CSV line per row: predicted, measured, errors, components; the file appears whole
    or not at all."""
    from planner.verbs import validate as validation

    catalog.write_text(path, "--csv", validation.run_lines(document))


def write_plot(document: Report, path: Path) -> None:
    """Write predicted against measured as one HTML page that needs no network; the file appears
    whole or not at all."""
    from planner.verbs import validate as validation

    catalog.write_text(path, "--plot", validation.page(document))
