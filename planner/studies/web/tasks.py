"""Tasks of workers for the studies."""

from __future__ import annotations

from planner.inputs import catalog
from planner.studies import check
from web.state import recipe_of
from web.tasks import dumped


def checked(body: bytes) -> bytes:
    """The document of `dpplan check --json`, of texts that were posted, with all its results."""
    files, given = recipe_of(body)
    with catalog.only_given(files):
        return dumped(check.with_results(tuple(files), given, "save", "append").document)


TASKS = {"checked": checked}
