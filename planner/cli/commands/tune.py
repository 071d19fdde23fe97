"""`dpplan tune`: which methods of fine-tuning fit the GPUs, with time and memory."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.cli.progress import progress
from planner.specs.options import Given
from planner.specs.options.own import Output
from planner.specs.options.tune import TuneOptions


def command(given: Given, request: TuneOptions, out: Output) -> Answer:
    """Fine-tune a model on given cards: which methods fit, to which context and micro-batch, in
    what time, for how much. Several --gpu are compared.

    Exit status: 0 a method fits, 3 none does, 2 the request is wrong, 130 interrupted.
    """
    from planner.verbs import tune
    from planner.verbs.workers import processes, workers
    from planner.views.tune import view

    with progress("methods", out.plain) as tick, workers(request.jobs, request.dask):
        document = tune.tune(request.changed(jobs=processes(request.jobs)), given, tick)
    return Answer(
        document,
        view=lambda: view(document),
        files={"csv": lambda: tune.csv_text(document)},
        status=0 if any(card.fastest for card in document.cards) else 3,
    )
