"""`dpplan allreduce`: time of an all-reduce by algorithm."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.specs.options import Given
from planner.specs.options.own import Output
from planner.specs.options.parallel import AllReduceOptions


def command(given: Given, request: AllReduceOptions, out: Output) -> Answer:
    """Compare all-reduce algorithms: seconds by size, the fastest by size and number of ranks, and
    where they change.

    Exit status: 0 answered, 2 the request is wrong.
    """
    from planner.verbs import allreduce
    from planner.views.allreduce import view

    document = allreduce.answer(given, request)
    return Answer(document, view=lambda: view(document))
