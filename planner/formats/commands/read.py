"""`dpplan read`: files of another program as a request."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.formats.options import ReadOptions
from planner.specs.options import Given
from planner.specs.options.own import Output


def command(given: Given, options: ReadOptions, out: Output) -> Answer:
    """Read launch scripts and configurations of other programs: every argument, the plan in options
    of `dpplan estimate`, and its estimate.

    Exit status: 0 read, and the plan fits or has no estimate yet, 3 it does not fit, 2 the request
    is wrong.
    """
    from planner.cli.made import recipe_of
    from planner.formats.verbs import read
    from planner.formats.views.read import view
    from planner.verbs.estimate import may_fit

    document = read.answer(recipe_of(options.files, given))
    fits = document.refused is None and (document.estimate is None or may_fit(document.estimate))
    return Answer(
        document,
        view=lambda: view(document, options.full),
        files={"append": lambda: read.appended(document, options)},
        status=0 if fits else 3,
    )
