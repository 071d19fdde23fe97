"""How every command ends: what it writes, what it prints, its exit status, and what it says of a
wrong request."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from planner.specs.error import PlanError
from planner.specs.options import Row
from planner.specs.options.own import Output

if TYPE_CHECKING:
    from planner.show.text import Block

_SHOWN = 1000  # characters of a wrong value that are quoted
WRONG = 2  # exit status of a wrong request


@dataclass(frozen=True)
class Answer:
    """What a command came to.

    document: of --json; blocks: tables, made only where they are printed; after: lines below them;
    files: the text of each result that may be asked for, by option; status: of the command.
    """

    document: Any
    blocks: Callable[[], Sequence[Block]]
    after: Callable[[], Sequence[str]] = tuple
    files: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    status: int = 0


def finish(
    out: Output, written: Mapping[str, Row], values: Mapping[str, Any], answer: Answer
) -> None:
    """Write the results that were asked for, print, and end with the answer's status."""
    from planner.inputs import catalog
    from planner.show.text import show_blocks

    asked = [(written[n], values[n], make) for n, make in answer.files.items() if n in values]
    texts = [(row, name, make()) for row, name, make in asked]  # all, before the first is written
    for row, name, text in texts:
        catalog.write_text(catalog.user_path(name, row.flag), row.flag, text)
    if out.json:
        print_json(answer.document)
    else:
        show_blocks(answer.blocks(), out.plain, answer.after())
    raise SystemExit(answer.status)


def check_results(written: Mapping[str, Row], values: Mapping[str, Any]) -> None:
    """Refuse a result that would replace another result of this command or a file that it reads."""
    results = {name: values[name] for name in written if name in values}
    others = (value for name, value in values.items() if name not in results)
    named = (
        one for value in others for one in (value if isinstance(value, list | tuple) else [value])
    )
    taken = {_place(one) for one in named if isinstance(one, str) and one}
    taken = {path for path in taken if os.path.isfile(path)}
    for name, path in results.items():
        if _place(path) in taken:
            raise PlanError(
                written[name].flag,
                path,
                "is named twice in this command; give each result its own file",
            )
        taken.add(_place(path))


def _place(name: str) -> str:
    return os.path.abspath(os.path.expanduser(name))


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
    encoding = sys.stderr.encoding or "utf-8"
    message = f"error: {' '.join(sentence.split())}"
    print(message.encode(encoding, "backslashreplace").decode(encoding), file=sys.stderr)


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    from planner.specs.document import to_json

    print(to_json(document, indent=2))
