"""The view of a verb: a view of its document, which `text` prints, `page` writes as a report
and a tab of the dashboard renders.

A view is a title, a verdict and parts in order: blocks of sentences with perhaps a table, and
charts. Cells of a table are values, whose column says the unit; a row may lead to another request.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import quote

from planner.specs.document import Doubted
from planner.views.cells import cell_text, column, is_right
from planner.views.chart import Chart

Mark = Literal["yes", "maybe", "no", "here", "now", ""]
EMPTY = {"", "-"}  # cells without a value: a column of only these is not shown
_UNIT = re.compile(r" (?:(?:bytes|flop) per s|(?<!per )s|bytes|flop|frac)$")  # ends a name
_LABELLED = re.compile(r"(\S(?:.*?\S)?) {2,}(\S.*)")


class Fixed(str):
    """A line that is shown as it is, such as a row of a drawing in characters."""

    __slots__ = ()


class Command(Fixed):
    """A line that is a command; a tab links the estimate that it asks for."""

    __slots__ = ()


class Caption(str):
    """A sentence about a drawing in characters, which goes with it."""

    __slots__ = ()


@dataclass(frozen=True)
class Link:
    """Where a row or a view leads.

    command: an estimate, with the options that who follows the link chooses by that; changes: the
    same request with these options changed, "" left out; address: of a page, where one is known;
    word: label of the link.
    """

    command: str = ""
    chosen: Collection[str] = ()
    changes: Mapping[str, object] = field(default_factory=dict)
    address: str = ""
    word: str = ""


@dataclass(frozen=True)
class File:
    """A result that is a file of its own. says: what it is for."""

    name: str
    text: str
    says: str

    @property
    def address(self) -> str:
        """The file as an address that holds it."""
        return f"data:text/plain;charset=utf-8,{quote(self.text)}"


@dataclass
class Block:
    """A title, sentences, and perhaps a table.

    header: of each column "title", ">title" where it is aligned as numbers are, or "title|unit"
    (`planner.views.cells`). order: order of the rows; drop: names of columns that may be dropped
    on a narrow screen, the first one first; below: lines under the table; part: of the block above
    it, so that its title is not underlined; lead: printed under the title of its view in place of
    its own; only: text, a drawing in characters whose chart is another part; page, too wide to be
    printed. marks, links: of each row; note: what the marks mean. folded: it is long, and opened
    by hand where that can be. chart: a drawing of the same, in place of its fixed lines. pictures:
    drawings (`planner.views.picture`), which are not printed as text.
    """

    title: str
    text: list[str] = field(default_factory=list)
    header: list[str] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)  # of sequences of Cell
    order: str = ""
    drop: tuple[str, ...] = ()
    below: list[str] = field(default_factory=list)
    part: bool = False
    lead: bool = False
    only: Literal["text", "page", ""] = ""
    marks: Sequence[Mark] = ()
    links: Sequence[Link | None] = ()
    note: str = ""
    folded: bool = False
    chart: Chart | None = None
    pictures: Sequence[Any] = ()

    @property
    def heading(self) -> str:
        """The title, and the order of the rows."""
        return f"{self.title}, {self.order}" if self.order else self.title

    @property
    def cells(self) -> list[list[str]]:
        """The rows as text."""
        units = [column(heading).unit for heading in self.header]
        return [
            [cell_text(v, unit, "-") for v, unit in zip(row, units, strict=False)]
            for row in self.rows
        ]

    @property
    def shown(self) -> list[tuple[str, bool, list[str]]]:
        """(title, whether to the right, cells) of the columns that say anything in any row."""
        columns = zip(self.header, zip(*self.cells, strict=True), strict=True) if self.rows else ()
        return [
            (column(heading).title, is_right(heading), list(cells))
            for heading, cells in columns
            if not EMPTY.issuperset(cells)
        ]


Parts = Sequence[Block | Chart]


@dataclass(frozen=True)
class View:
    """A document as it is shown.

    verdict: the sentence that answers, else the first sentence that follows; mark: its colour;
    doubts: implausible values of the request, before all else; text: sentences beside it. Charts
    among the parts are not printed; a block with a chart is printed as a block. links: other
    requests of the same kind; files: results to take along; notes: what the answer rests on, under
    their title. csv: the answer for a spreadsheet.
    """

    title: str
    verdict: str = ""
    mark: Mark = ""
    text: Sequence[str] = ()
    parts: Parts = ()
    links: Sequence[Link] = ()
    files: Sequence[File] = ()
    notes: Sequence[str] = ()
    noted: str = "What this rests on"
    csv: str = ""
    doubts: Sequence[str] = ()

    @classmethod
    def of(cls, blocks: Sequence[Block | Chart], **more: Any) -> View:
        """A view of parts under the title of the first block."""
        first = next(block for block in blocks if isinstance(block, Block))
        parts = [replace(first, lead=True) if block is first else block for block in blocks]
        return cls(first.title, parts=parts, **more)

    @property
    def blocks(self) -> list[Block]:
        """Blocks that are printed, in order."""
        doubts = [f"DOUBTFUL: {doubt}" for doubt in self.doubts]
        head = Block(self.title, [*doubts, *([self.verdict] if self.verdict else []), *self.text])
        parts = [part for part in self.parts if isinstance(part, Block) and part.only != "page"]
        if parts and parts[0].lead:
            first = parts.pop(0)
            head = replace(first, title=self.title, text=[*head.text, *first.text], lead=False)
        notes = [Block(self.noted, list(self.notes))] if self.notes else []
        return [head, *parts, *notes]


def with_doubts(view: View, document: Any) -> View:
    """The view of a document with the doubts that it has."""
    return replace(view, doubts=document.doubts) if isinstance(document, Doubted) else view


def words(name: str) -> str:
    """A key or a choice of a document as people read it."""
    return name.replace("_", " ").replace("-", " ")


def quantity(name: str) -> str:
    """The name of a formula or of its input as people read it: its value is shown with the unit."""
    return _UNIT.sub("", name.replace("_", " "))


def labelled(line: str) -> str | tuple[str, str]:
    """A sentence; or the label and the sentence of a line that begins with one."""
    match = None if isinstance(line, Fixed) else _LABELLED.fullmatch(line)
    return (match[1], match[2]) if match else line
