"""`dpplan search`: every valid layout, ranked."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.cli.progress import progress
from planner.specs.options import Given
from planner.specs.options.own import Output, SearchOptions


def command(given: Given, own: SearchOptions, out: Output) -> Answer:
    """Evaluate every valid layout: the best that fit, the Pareto front of time against memory, and
    why others fail.

    Exit status: 0 something fits, 3 nothing fits, 2 the request is wrong, 130 interrupted.
    """
    from planner.inputs.options import read_options
    from planner.report.search import csv_text
    from planner.verbs.search import search_with_layouts
    from planner.views.search import view

    with progress("searching", out.plain) as tick:
        found, plans = search_with_layouts(read_options(given), tick)

    def every_layout() -> str:
        with progress("evaluating what fits", out.plain) as tick:
            return csv_text(plans, tick)

    return Answer(
        found,
        view=lambda: view(found, own.full),
        paper=lambda: view(found, full=True),
        files={"csv": every_layout},
        status=0 if found.feasible else 3,
    )
