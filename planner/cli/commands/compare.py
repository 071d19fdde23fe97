"""`dpplan compare`: requests side by side, and sweeps."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.cli.made import Typed
from planner.cli.progress import progress
from planner.specs.options import Given
from planner.specs.options.own import CompareOptions, Output


def command(given: Given, typed: Typed, typed_request: CompareOptions, out: Output) -> Answer:
    """Compare clusters, models or layouts side by side with what makes the difference, or sweep any
    number.

    Exit status: 0 something fits, 3 nothing fits, 2 the request is wrong, 130 interrupted.
    """
    from planner.verbs import compare
    from planner.verbs.workers import processes, workers
    from planner.views.compare import view

    with progress("requests", out.plain) as tick, workers(typed_request.jobs, typed_request.dask):
        request = typed_request.changed(jobs=processes(typed_request.jobs))
        document = compare.compare(request, given, tick, typed=typed)
    fits = any(point.fits for point in document.points)

    return Answer(
        document,
        view=lambda: view(document, given),
        files={"csv": lambda: compare.csv_text(document)},
        status=0 if fits else 3,
    )
