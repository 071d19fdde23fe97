"""`dpplan batch`: time to a target against the number of GPUs when the batch must grow."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.cli.progress import progress
from planner.specs.options import Given
from planner.specs.options.own import BatchOptions, Output


def command(given: Given, own: BatchOptions, out: Output) -> Answer:
    """Days, cost and learning rate to the same loss over GPUs: batch kept, grown with them, or
    best; and why it saturates.

    Exit status: 0 something fits, 3 nothing fits, 2 the request is wrong, 130 interrupted.
    """
    from planner.verbs import batch
    from planner.verbs.workers import processes, workers
    from planner.views.batch import view

    with progress("requests", out.plain) as tick, workers(own.jobs, own.dask):
        found = batch.batch(own.changed(jobs=processes(own.jobs)), given, tick)
    fits = any(point.fits for regime in found.regimes.values() for point in regime.points)

    return Answer(
        found,
        view=lambda: view(found, given),
        files={"csv": lambda: batch.csv_text(found)},
        status=0 if fits else 3,
    )
