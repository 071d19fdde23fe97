"""`dpplan validate`: measured runs against predictions."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.cli.progress import progress
from planner.specs.options.commands import ValidateOptions
from planner.specs.options.own import Output


def command(own: ValidateOptions, out: Output) -> Answer:
    """Estimate every measured run from its row alone and report the error per row, suite and in
    all."""
    from planner import api
    from planner.inputs import catalog
    from planner.verbs.validate import files
    from planner.verbs.workers import processes, workers
    from planner.views.validate import view

    with progress("runs", out.plain) as tick, workers(own.jobs, own.dask):
        found = api.validate(
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
        from planner.views import validate_figure
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
