"""`dpplan recommend`: which cluster, how much bandwidth, how large a batch, how large a model,
recompute or swap."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.cli.progress import progress
from planner.error import PlanError
from planner.specs.options import Given, refuse
from planner.specs.options.own import Output
from planner.specs.options.recommend import Limits, QuestionOptions, RecommendOptions


def command(
    given: Given, question: QuestionOptions, limits: Limits, request: RecommendOptions, out: Output
) -> Answer:
    """Ask backwards: the cluster for a model, the bandwidth, batch or host link for a cluster, the
    model for a cluster.

    Exit status: 0 answered, 3 nothing is within the limits or fits, 2 the request is wrong, 130
    interrupted.
    """
    from planner.verbs import recommend
    from planner.verbs.workers import workers
    from planner.views.recommend import view

    for record in (limits, request):
        refuse(record, f"recommend {question.question}")
    if request.examples is not None:
        recommend.of_examples_alone(given, limits, request.examples)
    with progress("requests", out.plain) as tick, workers(request.jobs, request.dask):
        document = recommend.ask(question.question, given, limits, jobs=request.jobs, progress=tick)

    def model() -> str:
        shape = recommend.scaled_shape(document)
        if shape is None:
            raise PlanError(
                "--model-out",
                request.model_out,
                "has nothing to hold: no scaled model fits, or no --model was given",
            )
        return recommend.model_toml(shape)

    return Answer(
        document,
        view=lambda: view(document),
        files={"model_out": model},
        status=0 if recommend.answered(document) else 3,
    )
