"""`dpplan read`: files of another program as a request."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.formats.options import ReadOptions
from planner.specs.options import Given
from planner.specs.options.own import Output


def command(given: Given, own: ReadOptions, out: Output) -> Answer:
    """Read launch scripts and configurations of other programs: every argument, the plan in options
    of `dpplan estimate`, and its estimate.

    Exit status: 0 read, and the plan fits or has no estimate yet, 3 it does not fit, 2 the request
    is wrong.
    """
    from planner.cli.made import recipe_of
    from planner.formats.verbs import read
    from planner.formats.views.read import view

    found = read.answer(recipe_of(own.files, given))
    fits = found.refused is None and (
        found.estimate is None
        or found.estimate.memory.fits
        or any(one.fits for one in found.possible)
    )
    return Answer(
        found,
        view=lambda: view(found, own.full),
        files={"append": lambda: read.appended(found, own)},
        status=0 if fits else 3,
    )
