"""`dpplan strategies`: every way of keeping replicas in step."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.error import PlanError
from planner.specs.options import Given
from planner.specs.options.own import Output
from planner.specs.options.parallel import StrategyName, StrategySettings


def command(given: Given, which: StrategyName, settings: StrategySettings, out: Output) -> Answer:
    """Compare every way of keeping replicas in step: memory, time, bytes sent, and time to the same
    loss.

    Exit status: 0 something fits, 3 nothing fits, 2 the request is wrong.
    """
    if which.explain and which.strategy is None:
        raise PlanError("--explain", None, "explains one strategy: name it with --strategy")
    from planner.inputs.options import read_options
    from planner.specs.document import changed
    from planner.verbs import strategies
    from planner.views import explain as tree_of
    from planner.views.strategies import view

    options = read_options(given)
    found = strategies.answer(options, settings, which.strategy)
    document, after = found, list[str]()
    if which.explain and which.strategy is not None:
        tree = strategies.explain(options, settings, which.strategy)
        document = changed(found, explain=tree_of.nested(tree))
        after = tree_of.lines(tree)
    return Answer(
        document, view=lambda: view(found), after=lambda: after, status=0 if found.fits else 3
    )
