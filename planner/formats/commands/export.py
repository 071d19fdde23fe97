"""`dpplan export`: the files of a framework for the chosen layout."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.error import PlanError
from planner.formats.options import ExportOptions
from planner.specs.options import Given
from planner.specs.options.own import Output


def command(given: Given, options: ExportOptions, out: Output) -> Answer:
    """Write the chosen layout as the files of a framework, with scripts for torchrun, Slurm,
    Kubernetes and SkyPilot; what is left out of the layout is searched.

    Exit status: 0 written and fits, 3 written and does not fit, 2 the request is wrong.
    """
    from planner.formats.views.export import view

    if options.rank is not None and options.answer is None:
        raise PlanError("--rank", options.rank, "applies to a saved answer: name its file, too")
    from planner.formats.verbs.export import export, saved
    from planner.inputs.options import read_options

    whole = {**saved(options.answer, options.rank), **given} if options.answer else given
    document = export(read_options(whole), options)
    return Answer(
        document,
        view=lambda: view(document, options.out),
        files={"out": lambda: {file.name: file.text for file in document.files}},
        status=0 if document.predicted.memory.fits else 3,
    )
