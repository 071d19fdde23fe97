"""Files of a run as they lie in its folder: which are recipes, and which say how it went."""

from __future__ import annotations

from collections.abc import Iterable

from planner.formats import recipe as formats
from planner.inputs import catalog
from planner.studies.check.phases import is_answer
from planner.studies.logs import says_anything, stream
from planner.studies.traces import profiler, snapshot

RUNS = b"run_id"  # a runs table begins with it
_BOM = b"\xef\xbb\xbf"


def is_runs_table(head: bytes) -> bool:
    """Whether a file begins as a runs table."""
    return head.removeprefix(_BOM).startswith(RUNS)


def recipes_of(names: Iterable[str], field: str) -> dict[str, str]:
    """The recipes among these files, with their texts. A log that repeats a command line is a log,
    and
    so is what is neither: its reader says what it lacks."""
    texts = {}
    for name in names:
        path = catalog.user_path(name, field)
        with stream.pieces(path, field) as source:
            head = source.head()
        if (
            snapshot.is_one(head)
            or profiler.is_one(head)
            or is_runs_table(head)
            or is_answer(head)
            or says_anything(head)
        ):
            continue
        text = head[: formats.MOST_BYTES + 1].decode("utf-8", "replace").replace("\r\n", "\n")
        if formats.knows({name: text}):
            texts[name] = catalog.read_text(path, field, formats.MOST_BYTES).removeprefix("\ufeff")
    return texts
