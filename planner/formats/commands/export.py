"""`dpplan export`: the files of a framework for the chosen layout."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.error import PlanError
from planner.formats.options import ExportOptions
from planner.specs.options import Given
from planner.specs.options.own import Output


def command(given: Given, own: ExportOptions, out: Output) -> Answer:
    """Write the chosen layout as the files of a framework, with scripts for torchrun, Slurm,
    Kubernetes and SkyPilot; what is left out of the layout is searched.

    Exit status: 0 written and fits, 3 written and does not fit, 2 the request is wrong.
    """
    from planner.formats.views.export import view

    if own.rank is not None and own.answer is None:
        raise PlanError("--rank", own.rank, "is of a saved answer: name its file, too")
    from planner.formats.verbs.export import export, saved
    from planner.inputs.options import read_options

    whole = {**saved(own.answer, own.rank), **given} if own.answer else given
    found = export(read_options(whole), own)
    return Answer(
        found,
        view=lambda: view(found, own.out),
        files={"out": lambda: {one.name: one.text for one in found.files}},
        status=0 if found.predicted.memory.fits else 3,
    )
