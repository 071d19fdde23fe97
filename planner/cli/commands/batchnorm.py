"""`dpplan batchnorm`: synchronized batch norm in one training step."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.specs.options import Given
from planner.specs.options.own import Output
from planner.specs.options.parallel import BatchNormOptions


def command(given: Given, own: BatchNormOptions, out: Output) -> Answer:
    """Bytes and time of synchronized batch norm in one training step.

    Exit status: 0 answered, 2 the request is wrong.
    """
    from planner.verbs import batchnorm
    from planner.views.batchnorm import view

    found = batchnorm.answer(given, own.channels)
    return Answer(found, view=lambda: view(found))
