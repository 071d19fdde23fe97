"""`dpplan check`: what logs and recordings say, beside what was predicted."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.specs.options import Given
from planner.specs.options.own import Output
from planner.studies.options import CheckOptions


def command(given: Given, own: CheckOptions, out: Output) -> Answer:
    """Read the log of a run, or a recording of its step or memory, and compare it with what was
    predicted of its recipe.

    Exit status: 0 read, and inside the band of the prediction; 3 outside of it, or memory ran out;
    2 the request is wrong.
    """
    from planner.studies import check
    from planner.studies.views.check import view

    found = check.check(own, given)
    document = found.document
    against = check.compared(document)
    outside = against is not None and against.verdict != check.INSIDE
    short = any(one.shortages for one in document.files)
    return Answer(
        document,
        view=lambda: view(document),
        files={
            "save": lambda: document.learned.calibration if document.learned else "",
            "append": lambda: found.table or "",
        },
        status=3 if outside or short else 0,
    )
