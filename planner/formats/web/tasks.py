"""Tasks of workers for the formats."""

from __future__ import annotations

from planner.formats.plan import planned
from planner.formats.verbs import read
from planner.inputs import catalog
from web.state import of_mapping, recipe_of
from web.tasks import dumped


def recipe(body: bytes) -> bytes:
    """The document of `dpplan read --json`, of texts that were posted."""
    files, given = recipe_of(body)
    with catalog.only_given({}):
        plan = planned(files, given)
        if not plan.missing and not plan.refused:
            of_mapping(plan.options)  # within the limits of a page
        return dumped(read.answer(plan))


TASKS = {"recipe": recipe}
