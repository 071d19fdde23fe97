"""`dpplan tune`: which methods of fine-tuning fit the GPUs, with time and memory."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.cli.progress import progress
from planner.specs.options import Given, refuse
from planner.specs.options.own import Output
from planner.specs.options.recommend import Limits
from planner.specs.options.tune import TuneOptions


def command(given: Given, request: TuneOptions, limits: Limits, out: Output) -> Answer:
    """Fine-tune a model on given cards: which methods fit, to which context and micro-batch, in
    what time, for how much. Several --gpu (or any) and numbers up to --max-gpus are compared.

    Exit status: 0 a method fits within the limits, 3 none does, 2 the request is wrong, 130
    interrupted.
    """
    from planner.verbs import tune
    from planner.verbs.workers import processes, workers
    from planner.views.tune import view

    refuse(limits, "tune")
    with progress("methods", out.plain) as tick, workers(request.jobs, request.dask):
        document = tune.tune(request.changed(jobs=processes(request.jobs)), given, limits, tick)
    return Answer(
        document,
        view=lambda: view(document),
        files={"csv": lambda: tune.csv_text(document)},
        status=0 if tune.answered(document) else 3,
    )
