"""The verb `read`: files of another program as a request, every argument accounted for, and what
the estimate says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from planner.formats.plan import Planned, planned
from planner.inputs.options import read_options
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION
from planner.specs.documents.advice import Advice
from planner.specs.documents.estimate import Estimate
from planner.specs.documents.read import Read, ReadArgument
from planner.verbs.estimate import estimate

_USES = ("read", "implied", "irrelevant", "not understood")


def read(files: Mapping[str, str], given: Mapping[str, Any]) -> Read:
    """What these texts, by the names of their files, plan, and the estimate of it.

    given: options beside them, which win. Raises PlanError where a file is broken or of no known
    kind, where two contradict each other, and where a given option is wrong.
    """
    return answer(planned(files, given))


def answer(found: Planned) -> Read:
    """The document of a plan."""
    recipe, refused = found.recipe, found.refused
    report: Estimate | None = None
    if not found.missing and not refused:
        try:
            report = estimate(read_options(found.options))
        except PlanError as error:  # no layout is possible: an answer
            refused = str(error)
    used = {
        name: ReadArgument(value=one.value, use=one.use, note=one.note)
        for name, one in recipe.arguments.items()
    }
    counts = Counter[str](one.use for one in used.values())
    return Read(
        schema_version=SCHEMA_VERSION,
        kind=recipe.kinds[0],
        kinds=list(recipe.kinds),
        options=dict(found.options),
        arguments=used,
        counts={use: counts[use] for use in _USES},
        notes=list(recipe.notes),
        missing=list(found.missing),
        refused=refused or None,
        estimate=report,
        better=None if report is None else _better(report),
        command=None if report is None else report.command,
    )


def _better(report: Estimate) -> Advice | None:
    """Of the changes of the layout alone, on the same GPUs, the one whose step gains most."""
    same = [
        one
        for one in report.advice
        if one.fits and one.gpus == report.cluster.gpus and one.kind == "search"
    ]
    faster = [one for one in same if one.tokens_per_s > report.throughput.tokens_per_s]
    candidates = faster if report.memory.fits else same
    return max(candidates, key=lambda one: one.tokens_per_s, default=None)
