"""`dpplan tune`: which methods of fine-tuning fit the cards, and what they take."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.cli.progress import progress
from planner.specs.options import Given
from planner.specs.options.own import Output
from planner.specs.options.tune import TuneOptions


def command(given: Given, own: TuneOptions, out: Output) -> Answer:
    """Fine-tune a model on given cards: which methods fit, to which context and micro-batch, in
    what time, for how much.

    Exit status: 0 a method fits, 3 none does, 2 the request is wrong, 130 interrupted.
    """
    from planner.verbs import tune
    from planner.verbs.workers import processes, workers
    from planner.views.tune import view

    with progress("methods", out.plain) as tick, workers(own.jobs, own.dask):
        found = tune.tune(own.changed(jobs=processes(own.jobs)), given, tick)
    return Answer(
        found,
        view=lambda: view(found),
        files={"csv": lambda: tune.csv_text(found)},
        status=3 if found.fastest is None else 0,
    )
