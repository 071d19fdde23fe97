"""`dpplan compare`: requests side by side, and sweeps."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.cli.made import Typed
from planner.cli.progress import progress
from planner.specs.options import Given
from planner.specs.options.own import CompareOptions, Output


def command(given: Given, typed: Typed, own: CompareOptions, out: Output) -> Answer:
    """Compare clusters, models or layouts side by side with what makes the difference, or sweep any
    number.

    Exit status: 0 something fits, 3 nothing fits, 2 the request is wrong, 130 interrupted.
    """
    from planner.verbs import compare
    from planner.verbs.workers import processes, workers
    from planner.views.compare import view

    with progress("requests", out.plain) as tick, workers(own.jobs, own.dask):
        asked = own.changed(jobs=processes(own.jobs))
        found = compare.compare(asked, given, tick, typed=typed)
    fits = any(point.fits for point in found.points)

    return Answer(
        found,
        view=lambda: view(found, given),
        files={"csv": lambda: compare.csv_text(found)},
        status=0 if fits else 3,
    )
