"""`dpplan preflight`: this node against a plan, before a run."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.preflight.options import PreflightOptions
from planner.specs.options import Given
from planner.specs.options.own import Output


def command(given: Given, options: PreflightOptions, out: Output) -> Answer:
    """Check this node against a plan before it runs: GPUs, their free memory and power limits,
    host memory, shared memory, disk and network cards.

    Exit status: 0 ready, 3 a check failed, 2 the request is wrong or the driver does not answer.
    """
    from planner.preflight.verb import answer, view

    document = answer(given, options.folder)
    return Answer(document, view=lambda: view(document), status=0 if document.ready else 3)
