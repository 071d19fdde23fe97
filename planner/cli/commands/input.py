"""`dpplan input`: loading at a stated rate of samples."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.specs.options import Given
from planner.specs.options.own import Output
from planner.specs.options.parallel import InputOptions


def command(given: Given, own: InputOptions, out: Output) -> Answer:
    """Size storage, data-loader workers and host memory for a rate of samples; models of tokens:
    the same options of `dpplan estimate`.

    Exit status: 0 loading keeps up, 3 the step waits for it, 2 the request is wrong.
    """
    from planner.verbs.input import answer
    from planner.views.conditions import view

    found = answer(given, own)
    return Answer(found, view=lambda: view(found), status=0 if found.input.bound is None else 3)
