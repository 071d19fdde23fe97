"""`dpplan validate`: measured runs against predictions."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.cli.progress import progress
from planner.specs.options.own import Output
from planner.studies.options import ValidateOptions


def command(request: ValidateOptions, out: Output) -> Answer:
    """Estimate every measured run from its row and report the error per row, suite and in all."""
    from planner.inputs import catalog
    from planner.studies.validate import files, validate
    from planner.studies.views.validate import view
    from planner.verbs.workers import processes, workers

    with progress("runs", out.plain) as tick, workers(request.jobs, request.dask):
        document = validate(
            [catalog.user_path(name, "RUNS.csv") for name in request.runs],
            request.calibration,
            request.suite,
            jobs=processes(request.jobs),
            progress=tick,
        )

    def plot() -> str:
        from planner.studies.views import validate_figure
        from planner.views.page import page

        return page(validate_figure.view(document), option="--plot")

    return Answer(
        document,
        view=lambda: view(document),
        files={"csv": lambda: files.run_lines(document), "plot": plot},
    )
