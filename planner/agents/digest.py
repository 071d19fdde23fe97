"""Answers in at most 1,000 bytes: the verdict with its band, the command that repeats it, defaults
that it assumes and its evidence; then sentences and rows of tables, as many as fit."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.cli.finish import Answer
from planner.error import short
from planner.specs.options import Row
from planner.views.text import ascii_of
from planner.views.view import Block, Command, with_doubts

MOST = 1000  # bytes of an answer
_ASSUMED = 260  # bytes of the defaults that an answer names
_EVIDENCE = ("band", "defaults")  # labels of an estimate's lines on how sure it is
_FIRST = ("run ", "cost ", "memory ")  # sentences that come before others
_NO = ("no", "does not fit")  # cells of rows that come after others
_CELLS = 6  # columns of a table that a row shows
_WORDS = 30  # characters of the longest cell of such a column: prose is left out


def command(
    verb: str, words: Sequence[str], values: Mapping[str, Any], table: Mapping[str, Row]
) -> str:
    """The command that repeats a request."""
    line = ["dpplan", verb, *words]
    for name, value in values.items():
        several = value if isinstance(value, list | tuple) else [value]
        for each in several:
            flag = table[name].flag if name in table else f"--{name.replace('_', '-')}"
            if name in table and table[name].says.argument:
                line.append(str(each))
            elif isinstance(each, bool):
                line += [flag] if each else []
            else:
                line += [flag, str(each)]
    return shlex.join(line)


def of_answer(answer: Answer, repeat: str, tables: bool = False) -> str:
    """The answer as lines. tables: rows of tables come before sentences."""
    view = with_doubts(answer.view(), answer.document)
    head, *blocks = map(ascii_of, view.blocks)
    doubts = [line for line in head.text if line.startswith("DOUBTFUL")]
    sentences = [line for line in head.text if line not in doubts and not isinstance(line, Command)]
    verdict, *details = sentences or [view.title]
    lines = [f"{view.title}: {_plain(verdict)}", *doubts, f"repeat: {repeat}"]
    lines += _assumed(blocks, list(view.notes))
    for block in blocks:
        if block.text and not (block.rows or _is_evidence(block) or block.title == view.noted):
            details += block.text
    details.sort(key=lambda line: not line.startswith(_FIRST))
    rows = [row for block in [head, *blocks] for row in _rows(block)]
    more = [*rows, *details] if tables else [*details, *rows]
    return _filled(lines, [_plain(line) for line in more if "dpplan " not in line])


def _plain(line: str) -> str:
    return " ".join(line.split())


def of_list(entries: Any, kind: str | None, like: str) -> str:
    """Ids and titles of a kind of the catalogue that hold a text."""
    pairs = [_named(entry) for entry in entries]
    matching = [pair for pair in pairs if like.lower() in pair.lower()]
    title = f"{len(matching)} of {len(pairs)} {kind or 'kinds'}"
    lines = [title + (f" like {like[:40]!r}" if like else "")]
    text = _filled(lines, matching)
    left = len(matching) - text.count("\n")
    return text if not left else f"{text}\n{left} more: filter with `like`"


def _named(entry: Any) -> str:
    names = [getattr(entry, key, None) for key in ("kind", "id", "title")]
    return ": ".join(dict.fromkeys(str(name) for name in names if name))


def _assumed(blocks: Sequence[Block], notes: list[str]) -> list[str]:
    """Defaults that an answer rests on, and the evidence of its band."""
    evidence = [line for block in blocks if _is_evidence(block) for line in block.text]
    named = dict(line.split(None, 1) for line in evidence if " " in line)
    lines = [f"{label}: {named[label]}" for label in _EVIDENCE if label in named]
    if not notes:
        return lines
    kept = [notes[0]]
    for note in notes[1:]:
        if sum(map(len, [*kept, note])) <= _ASSUMED:
            kept.append(note)
    left = f"; {len(notes) - len(kept)} more" if len(kept) < len(notes) else ""
    return [*lines, f"assumed: {short('; '.join(kept), 2 * _ASSUMED)}{left}"]


def _is_evidence(block: Block) -> bool:
    return any(line.startswith("band ") for line in block.text)


def _rows(block: Block) -> Iterator[str]:
    """Rows of a table as lines, each cell with its heading."""
    columns = [(title, cells) for title, _, cells in block.shown]
    shown = [(title, cells) for title, cells in columns if max(map(len, cells)) <= _WORDS][:_CELLS]
    order = range(len(block.rows) if shown else 0)
    for index in sorted(order, key=lambda i: any(cells[i] in _NO for _, cells in shown)):
        cells = [f"{title} {cells[index]}".strip() for title, cells in shown]
        yield ", ".join(cell for cell in cells if not cell.endswith(" -"))


def _filled(lines: Sequence[str], more: Sequence[str]) -> str:
    """Lines that must be there, shortened where they are too long, then more while they fit. The
    command that repeats the request stays whole if it is not longer than half of the answer."""
    kept = list(lines)
    whole = MOST - 50  # room for the count of what is left out
    while len("\n".join(kept).encode()) > whole:
        longest = max(range(len(kept)), key=lambda i: len(kept[i]) / (1 + ("repeat: " in kept[i])))
        kept[longest] = short(kept[longest], len(kept[longest]) * 3 // 4)
    for line in filter(None, more):
        if len("\n".join([*kept, line]).encode()) <= whole:
            kept.append(line)
    return "\n".join(kept)
