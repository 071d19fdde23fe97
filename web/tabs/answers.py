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
from planner.views import allreduce as allreduce_view
from planner.views import batch as batch_view
from planner.views import batchnorm as batchnorm_view
from planner.views import conditions, explain
from planner.views import recommend as recommend_view
from planner.views import strategies as strategies_view
from planner.views import tune as tune_view
from planner.views.view import View
from web.tabs import schedule, sweep
from web.tabs.base import Answers, Asked


def _recommend(asked: Asked) -> Any:
    question, limits = asked.of(QuestionOptions).question, asked.of(Limits)
    refuse(limits, f"recommend {question}")
    return recommend.ask(question, asked.given, limits, jobs=1)


def _strategies(asked: Asked) -> Strategies:
    which, settings = asked.of(StrategyName), asked.of(StrategySettings)
    found = strategies.answer(asked.state.options, settings, which.strategy)
    if not which.explain:
        return found
    if which.strategy is None:
        raise PlanError("--explain", None, "explains one strategy: name it with --strategy")
    tree = strategies.explain(asked.state.options, settings, which.strategy)
    return changed(found, explain=explain.nested(tree))


def _batch(found: Any, asked: Asked) -> View:
    return batch_view.view(found, asked.state.options.given(), batch.csv_text(found))


ANSWERS = {
    "/recommend": Answers(_recommend, lambda found, _: recommend_view.view(found)),
    "/batch": Answers(
        lambda asked: batch.batch(asked.of(BatchOptions).changed(jobs=1), asked.given), _batch
    ),
    "/sweep": sweep.ANSWERS,
    "/strategies": Answers(
        _strategies,
        lambda found, _: strategies_view.view(found),
        choices={"strategy": lambda: [(one.name, one.title) for one in strategies.STRATEGIES]},
    ),
    "/allreduce": Answers(
        lambda asked: allreduce.answer(asked.given, asked.of(AllReduceOptions)),
        lambda found, _: allreduce_view.view(found),
    ),
    "/batchnorm": Answers(
        lambda asked: batchnorm.answer(asked.given, asked.of(BatchNormOptions).channels),
        lambda found, _: batchnorm_view.view(found),
    ),
    "/tune": Answers(
        lambda asked: tune.tune(asked.of(TuneOptions).changed(jobs=1), asked.given),
        lambda found, _: tune_view.view(found),
    ),
    "/schedule": schedule.ANSWERS,
    "/input": Answers(
        lambda asked: input.answer(asked.given, asked.of(InputOptions)),
        lambda found, _: conditions.view(found),
    ),
}
