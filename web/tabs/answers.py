"""How each tab answers: the verb that it asks, and the view of the command line."""

from __future__ import annotations

from typing import Any

from planner.specs.base import PlanError
from planner.specs.document import changed
from planner.specs.documents.strategies import Strategies
from planner.specs.options import refuse
from planner.specs.options.own import BatchOptions
from planner.specs.options.parallel import (
    AllReduceOptions,
    BatchNormOptions,
    InputOptions,
    StrategyName,
    StrategySettings,
)
from planner.specs.options.recommend import Limits, QuestionOptions
from planner.specs.options.tune import TuneOptions
from planner.verbs import allreduce, batch, batchnorm, input, recommend, strategies, tune
from planner.verbs.tune.methods import methods_named
from planner.views import allreduce as allreduce_view
from planner.views import batch as batch_view
from planner.views import batchnorm as batchnorm_view
from planner.views import conditions, explain
from planner.views import recommend as recommend_view
from planner.views import strategies as strategies_view
from planner.views import tune as tune_view
from planner.views.view import View
from web.tabs import schedule, sweep
from web.tabs.base import Answers, TabRequest


def _recommend(request: TabRequest) -> Any:
    question, limits = request.of(QuestionOptions).question, request.of(Limits)
    refuse(limits, f"recommend {question}")
    return recommend.ask(question, request.given, limits, jobs=1, progress=request.progress)


def _first_kind(request: TabRequest) -> Any:
    """The answer of the first of several kinds."""
    kinds, question = request.given.get("gpu"), request.of(QuestionOptions).question
    if question != "cluster" or not isinstance(kinds, list) or len(kinds) == 1:
        return None
    given = {**request.given, "gpu": kinds[:1]}
    return recommend.ask(question, given, request.of(Limits), jobs=1)


def _tune(request: TabRequest) -> Any:
    return tune.tune(
        request.of(TuneOptions).changed(jobs=1), request.given, request.of(Limits), request.progress
    )


def _first_method(request: TabRequest) -> Any:
    """The answer of the first method on the first kind of GPU."""
    options = request.of(TuneOptions)
    names = [method.name for method in methods_named(options.method, options.rank)]
    if len(names) == 1 or options.largest:
        return None
    (given, *_), _ = tune.cards.every(request.given, Limits())
    return tune.tune(options.changed(method=names[0], jobs=1), given)


def _strategies(request: TabRequest) -> Strategies:
    which, settings = request.of(StrategyName), request.of(StrategySettings)
    document = strategies.answer(request.state.options, settings, which.strategy)
    if not which.explain:
        return document
    if which.strategy is None:
        raise PlanError("--explain", None, "explains one strategy: name it with --strategy")
    tree = strategies.explain(request.state.options, settings, which.strategy)
    return changed(document, explain=explain.nested(tree))


def _batch(document: Any, request: TabRequest) -> View:
    return batch_view.view(document, request.state.options.given(), batch.csv_text(document))


ANSWERS = {
    "/recommend": Answers(
        _recommend, lambda document, _: recommend_view.view(document), sooner=_first_kind
    ),
    "/batch": Answers(
        lambda request: batch.batch(
            request.of(BatchOptions).changed(jobs=1), request.given, request.progress
        ),
        _batch,
    ),
    "/sweep": sweep.ANSWERS,
    "/strategies": Answers(
        _strategies,
        lambda document, _: strategies_view.view(document),
        choices={
            "strategy": lambda: [
                (strategy.name, strategy.title) for strategy in strategies.STRATEGIES
            ]
        },
    ),
    "/allreduce": Answers(
        lambda request: allreduce.answer(request.given, request.of(AllReduceOptions)),
        lambda document, _: allreduce_view.view(document),
    ),
    "/batchnorm": Answers(
        lambda request: batchnorm.answer(request.given, request.of(BatchNormOptions).channels),
        lambda value, _: batchnorm_view.view(value),
    ),
    "/tune": Answers(_tune, lambda document, _: tune_view.view(document), sooner=_first_method),
    "/schedule": schedule.ANSWERS,
    "/input": Answers(
        lambda request: input.answer(request.given, request.of(InputOptions)),
        lambda document, _: conditions.view(document),
    ),
}
