"""`dpplan allreduce`: time of an all-reduce by algorithm."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.specs.options import Given
from planner.specs.options.own import Output
from planner.specs.options.parallel import AllReduceOptions


def command(given: Given, own: AllReduceOptions, out: Output) -> Answer:
    """Compare all-reduce algorithms: seconds by size, the fastest by size and number of ranks, and
    where they change.

    Exit status: 0 answered, 2 the request is wrong.
    """
    from planner.verbs import allreduce
    from planner.views.allreduce import view

    found = allreduce.answer(given, own)
    return Answer(found, view=lambda: view(found))
