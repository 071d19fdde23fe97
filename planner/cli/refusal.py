"""Messages on a wrong request. Imports nothing that a plug-in could break."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from planner.error import PlanError

_SHOWN = 1000  # characters of a wrong value that are quoted
WRONG = 2  # exit status of a wrong request


@contextmanager
def clear_errors(as_json: bool) -> Iterator[None]:
    """A wrong request ends with one sentence on stderr (and one JSON document under --json), exit
    status 2."""
    try:
        yield
    except PlanError as error:
        refuse(error.field, error.value, error.remedy, as_json, str(error))
        raise SystemExit(WRONG) from None


def refuse(problem: str, value: object, remedy: str, as_json: bool, sentence: str) -> None:
    """Say what is wrong with a request: a sentence on stderr, and under --json a document on
    stdout."""
    if as_json:
        from planner.specs.document import SCHEMA_VERSION
        from planner.specs.documents.error import Error, Refusal

        shown = value if value is None or isinstance(value, bool | float) else str(value)[:_SHOWN]
        print_json(Refusal(SCHEMA_VERSION, Error(problem, shown, remedy)))
    print(f"error: {' '.join(sentence.split())}", file=sys.stderr)


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    from planner.specs.document import to_json

    print(to_json(document, indent=2), flush=True)
