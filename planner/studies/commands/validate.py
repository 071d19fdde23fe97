"""`dpplan validate`: measured runs against predictions."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.cli.progress import progress
from planner.specs.options.own import Output
from planner.studies.options import ValidateOptions


def command(own: ValidateOptions, out: Output) -> Answer:
    """Estimate every measured run from its row and report the error per row, suite and in all."""
    from planner.inputs import catalog
    from planner.studies.validate import files, validate
    from planner.studies.views.validate import view
    from planner.verbs.workers import processes, workers

    with progress("runs", out.plain) as tick, workers(own.jobs, own.dask):
        found = validate(
            [catalog.user_path(name, "RUNS.csv") for name in own.runs],
            own.calibration,
            own.suite,
            coverage=own.coverage,
            ablations=own.ablations,
            cross_validation=own.cross_validate,
            unseen=own.residuals is not None,
            jobs=processes(own.jobs),
            progress=tick,
        )

    def plot() -> str:
        from planner.studies.views import validate_figure
        from planner.views.page import page

        return page(validate_figure.view(found), option="--plot")

    return Answer(
        found,
        view=lambda: view(found),
        files={
            "csv": lambda: files.run_lines(found),
            "plot": plot,
            "residuals": lambda: files.residual_lines(found),
            "memory_residuals": lambda: files.memory_residual_lines(found),
        },
    )
