"""How every command ends: what it writes, what it prints, and its exit status."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.cli.refusal import print_json
from planner.error import PlanError
from planner.inputs import files
from planner.inputs.files import Place, places
from planner.specs.options import Row
from planner.specs.options.own import Output

if TYPE_CHECKING:
    from planner.views.view import View

_IS_PRINTED = "is where the answer is printed; give the result a file of its own"
_TWICE = "is named twice in this command; give each result its own file"


@dataclass(frozen=True)
class Answer:
    """The result of a command.

    document: of --json; view: what is printed, made only where it is; paper: what --html writes,
    where that is more; after: lines below what is printed; files: the text of each result by
    the option that requests it, or for a folder the texts of its files by name; status: of the
    command.
    """

    document: Any
    view: Callable[[], View]
    paper: Callable[[], View] | None = None
    after: Callable[[], Sequence[str]] = tuple
    files: Mapping[str, Callable[[], str | Mapping[str, str]]] = field(default_factory=dict)
    status: int = 0


def finish(
    out: Output, written: Mapping[str, Row], values: Mapping[str, Any], answer: Answer
) -> None:
    """Write the requested results, print, and end with the answer's status."""
    from planner.views.text import show_blocks
    from planner.views.view import with_doubts

    write(written, values, answer, out.json)
    if out.json:
        print_json(answer.document)
    else:
        show_blocks(with_doubts(answer.view(), answer.document).blocks, out.plain, answer.after())
    raise SystemExit(answer.status)


def write(
    written: Mapping[str, Row], values: Mapping[str, Any], answer: Answer, as_json: bool = False
) -> None:
    """Write the results that options name. Raises PlanError before the first is written."""
    makers = {**answer.files, "html": lambda: page_of(answer)}
    requested = [(written[n].flag, values[n], make) for n, make in makers.items() if n in values]
    texts = [(flag, name, make()) for flag, name, make in requested]
    results = [result for text in texts for result in _results(*text, as_json)]
    for result in results:  # all are made and may be written, before the first is
        files.write_text(*result)


def page_of(answer: Answer) -> str:
    from planner.views.page import page
    from planner.views.view import with_doubts

    view = with_doubts((answer.paper or answer.view)(), answer.document)
    return page(view, getattr(answer.document, "command", ""))


def _results(
    flag: str, name: str, text: str | Mapping[str, str], as_json: bool
) -> list[tuple[Path, str, str]]:
    """(path, flag, text) of each file of a result."""
    if isinstance(text, str):
        return [(files.result(name, flag), flag, text)]
    paths = files.folder(name, flag, text)
    if any(places(str(path)) & _printed(as_json) for path in paths):
        raise PlanError(flag, name, _IS_PRINTED)
    return [(path, flag, text) for path, text in zip(paths, text.values(), strict=True)]


def check_results(written: Mapping[str, Row], values: Mapping[str, Any], as_json: bool) -> None:
    """Refuse, before anything is computed, a result that cannot be written or that would replace
    another result of this command or a file that its options name.

    Files that only other files name are known once they are read: `files` refuses those.
    """
    results = {name: values[name] for name in written if name in values}
    if not results:
        return
    others = (value for name, value in values.items() if name not in results)
    read = {place for word in _words(others) if os.path.isfile(word) for place in places(word)}
    taken = {files.IS_READ: read, _IS_PRINTED: _printed(as_json), _TWICE: set()}
    for name, given in results.items():
        check = files.folder if written[name].says.file == "folder" else files.result
        check(given, written[name].flag)
        for why, used in taken.items():
            if used & places(given):
                raise PlanError(written[name].flag, given, why)
        taken[_TWICE] |= places(given)


def _printed(as_json: bool) -> set[Place]:
    """Files that no result may replace, as stdout goes there: the file behind it, and under --json,
    when stdout is one document, stdout itself."""
    taken_places = places("/dev/stdout") if as_json else set()
    with suppress(OSError):
        now = os.fstat(1)
        if stat.S_ISREG(now.st_mode):
            taken_places.add((now.st_dev, now.st_ino))
    return taken_places


def _words(values: Iterable[Any]) -> Iterator[str]:
    """Possible file names in these values, as `model=a.json,b.json` names two."""
    for value in values:
        for entry in value if isinstance(value, list | tuple) else [value]:
            if isinstance(entry, str):
                yield from (os.path.expanduser(part) for part in {entry, *re.split("[=,]", entry)})
