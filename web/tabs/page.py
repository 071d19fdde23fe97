"""The page of a tab as a worker makes it: form, verdict, tables and charts, and the values that
other tabs take over."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from planner.specs.base import PlanError
from planner.specs.document import changed
from planner.specs.options import flag
from planner.views.figures import Chart
from planner.views.view import Block, Fixed
from web.render import rendered
from web.state import Pairs, State, stated
from web.tabs.base import Tab, Table, asked
from web.tabs.form import form
from web.texts import text

_MOST_PASTED = 4_000  # characters of a pasted model that each row's link repeats
_SENTENCE = 30  # characters from which a cell is one
_EMPTY = {"", "-"}
_LABELLED = re.compile(r"(\S(?:.*?\S)?) {2,}(\S.*)")  # as the command line aligns them


def head(tab: Tab, pairs: Pairs) -> dict[str, Any]:
    """The form alone, while the answer is worked on."""
    return {"form": rendered("tab_form.html", tab=tab, form=form(tab, pairs, None))}


def page(
    tab: Tab, pairs: Pairs, files: Mapping[str, bytes] = MappingProxyType({})
) -> dict[str, Any]:
    """The parts of the page. What is wrong with a request stands in its form, and as `problem` for
    a page whose form has gone out already."""
    body, charts, error, plan = "", list[Chart](), None, None
    taken, left = tab.split(pairs)
    try:
        with asked(tab, taken, files) as request:
            found = tab.show(tab.find(request), request)
        plan = found.plan or request.state
        sheet = f"{tab.path}.csv?{urlencode(pairs)}" if found.csv else ""
        parts = [_part(part, request.state) for part in found.parts]
        charts = [part for part in parts if isinstance(part, Chart)]
        runs = [list(run) for _, run in groupby(parts, lambda part: isinstance(part, Chart))]
        free = tab.freed(pairs)
        unused, again = (
            ", ".join(
                f"{flag(name)} {text}"
                for name, text in stated(pairs)
                if name in dict(left) and (name in free) == is_free
            )
            for is_free in (False, True)
        )
        body = rendered(
            "tab_answer.html",
            found=found,
            runs=runs,
            sheet=sheet,
            unused=unused,
            again=again,
            conflicts=plan.conflicts,
            path="/" if tab.files else tab.path,
        )
    except PlanError as problem:
        error = problem
    return {
        "form": rendered("tab_form.html", tab=tab, form=form(tab, pairs, error)),
        "answer": body,
        "charts": charts,
        "ok": error is None,
        "problem": "" if error is None else str(error),
        "pairs": plan.pairs if plan and tab.files and found.plan else pairs,
    }


def _part(part: Table | Block | Chart, state: State) -> dict[str, Any] | Chart:
    """A part as the template takes it."""
    if isinstance(part, Chart):
        return changed(part, table=rendered("table.html", chart=part, links=None))
    table = part if isinstance(part, Table) else Table(part)
    block, count = table.block, len(table.block.rows)
    links = list(table.links) or [_estimate(one, state) for one in table.commands]
    kept = [i for i in range(len(block.header)) if {row[i] for row in block.rows} - _EMPTY]
    return {
        "block": block,
        "word": table.word or text("apply"),
        "note": table.note,
        "folded": table.folded,
        "text": [(_said(line), isinstance(line, Fixed)) for line in block.text if line],
        "header": [
            (
                block.header[i].lstrip(">"),
                "n" if block.header[i].startswith(">") else _prose(column),
            )
            for i in kept
            for column in [[row[i] for row in block.rows]]
        ],
        "rows": [
            {"cells": [row[i] for i in kept], "link": link, "mark": mark}
            for row, link, mark in zip(
                block.rows,
                _filled(links, count, None),
                _filled(table.marks, count, ""),
                strict=True,
            )
        ],
    }


def _said(line: str) -> str | tuple[str, str]:
    """A sentence, or the label and the sentence of a line that begins with one."""
    found = None if isinstance(line, Fixed) else _LABELLED.fullmatch(line)
    return (found[1], found[2]) if found else line


def _prose(cells: list[str]) -> str:
    """The class of a column of words: one of sentences keeps some width on a phone."""
    return "prose" if max(map(len, cells), default=0) > _SENTENCE else ""


def _filled(values: Iterable[Any], count: int, otherwise: Any) -> list[Any]:
    """Values of all rows, where none were given as where they are."""
    return list(values) or [otherwise] * count


def _estimate(command: str | None, state: State) -> str | None:
    """The address of the estimate that a command asks for; None where a pasted model is too long
    to be in every row's."""
    if command is None or (state.config and len(state.config) > _MOST_PASTED):
        return None
    try:
        return f"/?{state.picked(command).query}"
    except PlanError:  # beyond the limits of a page
        return None
