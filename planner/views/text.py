"""Blocks of text and tables from the documents, in lines of a given width.

A table that is too wide wraps its prose at words, then leaves out columns in the order that the
table declares, and becomes records where the rest is still too wide. A number, a word and a command
are never broken.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from planner.units import UNIT_WORDS
from planner.views.view import Block, Fixed

PIPED = 100  # characters of a line where the width of the screen is unknown
_NARROWEST = 40
_GAP = "  "
_HANG = 2  # characters by which the second line of a sentence is indented
_MOST_LABEL = 24  # characters of a label whose text goes on under itself
_PROSE_SHARE = 0.4  # of a line, which prose keeps before columns beside it are left out
_LEAST_PROSE = 16  # characters that a column of prose keeps
# what stays on one line: text in backticks, "micro-batch 1 x 32", "tp 2,", a number with its unit,
# a word
_ATOM = re.compile(
    r"[^\s`]*`[^`]*`\S*"
    r"|\S+ \d+ x \d+\S*|[a-z]{2,4} \d+,(?!\d)"
    rf"|\S*\d (?:{'|'.join(map(re.escape, UNIT_WORDS))})(?![A-Za-z])\S*"
    r"|\S+"
)
_LABEL = re.compile(r"\s*(?:\S+(?: \S+)*\s{2,})?")


@dataclass(frozen=True)
class Line:
    """A line of a printed block; role: title, rule, head, or body."""

    text: str
    role: str = "body"


def width_of(plain: bool) -> int:
    """Characters of a line: the terminal's; COLUMNS or a fixed number when piped."""
    if plain or not sys.stdout.isatty():
        named = os.environ.get("COLUMNS", "")
        return max(_NARROWEST, int(named) if named.isdecimal() else PIPED)
    return max(_NARROWEST, shutil.get_terminal_size((PIPED, 24)).columns)


def show_blocks(blocks: Sequence[Block], plain: bool, after: Sequence[str] = ()) -> None:
    """Print blocks, then more sentences: in color on a terminal, as ASCII otherwise."""
    width = width_of(plain)
    if plain or not sys.stdout.isatty():
        lines = [line for block in blocks for line in [*block_lines(ascii_of(block), width), ""]]
        print("\n".join(lines + [line for text in after for line in wrapped(_ascii(text), width)]))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    styles = {"title": "bold cyan", "head": "bold", "rule": "dim"}
    for block in blocks:
        for line in styled_lines(block, width):
            console.print(Text(line.text, styles.get(line.role, "")), soft_wrap=True)
        console.print()
    for sentence in after:
        for part in wrapped(sentence, width):
            console.print(Text(part), soft_wrap=True)


def ascii_of(block: Block) -> Block:
    """The block in ASCII."""
    return replace(
        block,
        title=_ascii(block.title),
        text=[_ascii(line) for line in block.text],
        below=[_ascii(line) for line in block.below],
        rows=[[_ascii(cell) for cell in row] for row in block.cells],
    )


def _ascii(text: str) -> str:
    plain = text.encode("ascii", "backslashreplace").decode("ascii")
    return type(text)(plain)


def block_lines(block: Block, width: int) -> list[str]:
    """The block in lines of at most this width, except for commands."""
    return [line.text for line in styled_lines(block, width)]


def styled_lines(block: Block, width: int) -> list[Line]:
    """As `block_lines`, each line with its role."""
    titles = wrapped(block.heading, width, 0)
    lines = [Line(text, "title") for text in titles]
    if not block.part:
        lines.append(Line("-" * max(map(len, titles)), "rule"))
    lines += [Line(part) for text in block.text for part in wrapped(text, width)]
    if block.rows:
        lines += _table_lines(block, width)
    elif block.header and not block.text:
        lines.append(Line("none"))
    return lines + [Line(part) for text in block.below for part in wrapped(text, width)]


def atoms(text: str) -> list[str]:
    """Units that a line break does not part: words, numbers with their units, text in backticks."""
    return _ATOM.findall(text)


def wrapped(text: str, width: int, hang: int = _HANG) -> list[str]:
    """A sentence in lines of at most this width, broken at words. Under a label and two spaces the
    sentence goes on under itself."""
    if isinstance(text, Fixed) or len(text) <= width:
        return [text]
    label = _LABEL.match(text)
    start = label.group() if label else ""
    if len(start) > _MOST_LABEL:
        start = start[: len(start) - len(start.lstrip())]
    rest = _filled(atoms(text[len(start) :]), width - len(start), 0 if start.strip() else hang)
    return [start + rest[0], *(" " * len(start) + line for line in rest[1:])]


def _filled(words: Sequence[str], width: int, hang: int = 0) -> list[str]:
    """Words in lines; all but the first are indented."""
    lines = [""]
    for word in words:
        if not lines[-1].strip():
            lines[-1] += word
        elif len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(" " * hang + word)
    return lines


# ------------------------------------------------------------------------------------- tables


@dataclass(frozen=True)
class _Column:
    """A column of a table, its cells and how wide they want to be."""

    name: str
    right: bool
    cells: list[str]

    @cached_property
    def natural(self) -> int:
        return max(map(len, (self.name, *self.cells)))

    @cached_property
    def least(self) -> int:
        """Width at which no word and no number is broken; a number is one cell on one line."""
        cells = self.cells if self.right else [w for cell in self.cells for w in atoms(cell)]
        return max(map(len, (*self.name.split(), *cells)), default=0)

    def wanted(self, width: int, share: float) -> int:
        """Width below which other columns are left out first: words of a heading may stand below
        one another, prose keeps its share of the line."""
        cells = max(map(len, self.cells))
        if self.right or cells <= _LEAST_PROSE:
            return max(self.least, cells)
        return max(self.least, min(self.natural, max(int(width * share), _LEAST_PROSE)))


def _table_lines(block: Block, width: int) -> list[Line]:
    columns = [_Column(*shown) for shown in block.shown]
    kept, widths = _fit(columns, block.drop, width)
    if not widths:
        return [Line(text) for text in _records(columns, width)]
    lines = [
        *(Line(text, "head") for text in _row(kept, widths, [c.name for c in kept])),
        Line(_GAP.join("-" * w for w in widths), "rule"),
    ]
    for i in range(len(block.rows)):
        lines += [Line(text) for text in _row(kept, widths, [c.cells[i] for c in kept])]
    left_out = [column.name for column in columns if column not in kept]
    if left_out:
        note = f"left out at this width: {', '.join(left_out)} (--json has all)"
        lines += [Line(text) for text in wrapped(note, width)]
    return lines


def _fit(
    columns: list[_Column], drop: Sequence[str], width: int
) -> tuple[list[_Column], list[int]]:
    """Columns that are shown and their widths; no widths where none fit."""
    gone: list[str] = []

    def shown() -> list[_Column]:
        return [column for column in columns if column.name not in gone]

    def fits() -> bool:
        return _whole(_wanted(shown(), width)) <= width

    for name in drop:
        if fits():
            break
        gone.append(name)
    if not fits():
        least = [column.least for column in shown()]
        return shown(), _spread(shown(), least, width) if _whole(least) <= width else []
    for name in reversed(gone.copy()):  # what has room beside what went after it
        gone.remove(name)
        if not fits():
            gone.append(name)
    return shown(), _spread(shown(), _wanted(shown(), width), width)


def _wanted(columns: Sequence[_Column], width: int) -> list[int]:
    prose = sum(not c.right and max(map(len, c.cells)) > _LEAST_PROSE for c in columns)
    return [column.wanted(width, _PROSE_SHARE / max(prose, 1)) for column in columns]


def _whole(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _spread(columns: Sequence[_Column], widths: list[int], width: int) -> list[int]:
    """Widths grown into the room that is left: first those that want least more."""
    out, room = list(widths), width - _whole(widths)
    open_ = sorted(range(len(columns)), key=lambda i: columns[i].natural - out[i])
    for position, i in enumerate(open_):
        more = min(columns[i].natural - out[i], room // (len(open_) - position))
        out[i] += more
        room -= more
    return out


def _row(columns: Sequence[_Column], widths: Sequence[int], cells: Sequence[str]) -> list[str]:
    """A row of cells as lines; what is longer than its column goes on below."""
    parts = [
        [cell] if len(cell) <= w else _filled(atoms(cell), w)
        for cell, w in zip(cells, widths, strict=True)
    ]
    out = []
    for depth in range(max(map(len, parts))):
        texts = [part[depth] if depth < len(part) else "" for part in parts]
        padded = [
            text.rjust(w) if c.right else text.ljust(w)
            for text, w, c in zip(texts, widths, columns, strict=True)
        ]
        out.append(_GAP.join(padded).rstrip())
    return out


def _records(columns: Sequence[_Column], width: int) -> list[str]:
    """Each row as lines of name and value, under the first cell."""
    first, *others = columns
    label = max(len(column.name) for column in others) if others else 0
    lines = []
    for i, cell in enumerate(first.cells):
        lines += wrapped(f"{first.name} {cell}", width)
        for column in others:
            if column.cells[i]:
                lines += wrapped(f"  {column.name:<{label}}  {column.cells[i]}", width)
    return lines
