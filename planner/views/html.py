"""Parts of a view as the templates of reports and tabs take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from planner.views.cells import column
from planner.views.figures import with_table
from planner.views.view import Block, Caption, Command, Fixed, Link, View, labelled

To = Callable[[Link], str | None]  # the address of a link, where it has one

_SENTENCE = 30  # characters from which a cell is prose
_VERDICTS = {"fits": "yes", "holds": "yes", "does not fit": "no", "DOES NOT HOLD": "no"}


def nowhere(_: Link) -> None:
    """No link has an address: the page is a file of its own."""


def parts_of(view: View, to: To = nowhere, word: str = "", paper: bool = True) -> dict[str, Any]:
    """A view as templates take it: verdict, lines of its head, and parts. word: label of a link
    that names none; paper: with what is too wide to be printed.

    A part with the title of the view gives its lines to the head; without a verdict the first of
    them is one.
    """
    without = {"text"} if paper else {"text", "page"}
    parts = [p for p in view.parts if not (isinstance(p, Block) and p.only in without)]
    lines = list(view.text)
    for i, part in enumerate(parts):
        if isinstance(part, Block) and part.lead and part.title == view.title:
            lines += part.text
            rest = replace(part, title=part.order.capitalize() or "Table", order="", text=[])
            parts[i : i + 1] = [rest] if part.rows or part.chart or part.below else []
            break
    verdict = view.verdict or (lines.pop(0) if lines else "")
    label = labelled(verdict)
    verdict = label if isinstance(label, str) else ": ".join(label)
    return {
        "title": view.title,
        "mark": view.mark,
        "verdict": verdict[:1].upper() + verdict[1:],
        "doubts": view.doubts,
        "lines": [_line(line, to, word) for line in lines if line],
        "parts": [block_of(p, to, word) if isinstance(p, Block) else p for p in parts],
        "noted": view.noted,
        "notes": view.notes,
        "files": view.files,
        "links": [(link.word or word, to(link)) for link in view.links],
    }


def block_of(block: Block, to: To, word: str = "") -> dict[str, Any]:
    """Lines, table and chart of a block. word: label of a link that names none. A drawing in
    characters is left out where the chart itself is there."""
    shown, shares = block.shown, _shares(block)
    named = next((cells for _, right, cells in shown if not right), ())
    lines = [line for line in block.text if line]
    if block.chart is not None:
        lines = [line for line in lines if type(line) not in (Fixed, Caption)]
    count = len(block.rows)
    links, nothing = block.links or [None] * count, [0.0] * count
    marks = block.marks or [""] * count
    return {
        "title": block.title,
        "heading": block.heading,
        "lines": [_line(line, to, word) for line in lines],
        "header": [
            (title, f"{'n' if right else _prose(cells)}{' wide' * (title in block.drop)}".strip())
            for title, right, cells in shown
        ],
        "rows": [
            {
                "cells": [
                    (cells[i], _VERDICTS.get(cells[i], ""), shares.get(title, nothing)[i])
                    for title, _, cells in shown
                ],
                "name": named[i] if named else "",
                "link": link and to(link),
                "word": (link and link.word) or word,
                "mark": mark,
            }
            for i, link, mark in zip(range(count), links, marks, strict=True)
        ],
        "note": block.note,
        "below": [_line(line, to, word) for line in block.below],
        "pictures": block.pictures,
        "folded": block.folded,
        "count": count or len(lines),
        "twin": bool(block.chart and block.chart.columns),
        "chart": block.chart and with_table(block.chart, block),
    }


def _shares(block: Block) -> dict[str, list[float]]:
    """Bars of columns of shares of a whole: lengths in percent of the longest, by title."""
    out = {}
    for i, each in enumerate(map(column, block.header)):
        if each.title == "share" and each.unit.startswith("%"):
            values = [row[i] if isinstance(row[i], float) else 0.0 for row in block.rows]
            most = max(values, default=0.0) or 1.0
            out[each.title] = [100 * value / most for value in values]
    return out


def _line(line: str, to: To, word: str) -> dict[str, Any]:
    """A sentence, perhaps with its label; a line that is shown as it is; a command, perhaps with
    the address of what it asks for."""
    if isinstance(line, Command):
        command = line.strip()
        at = command.find("dpplan ")
        link = Link(command=command[at:]) if at >= 0 else None
        return {"kind": "command", "text": command, "link": link and to(link), "word": word}
    if isinstance(line, Fixed):
        return {"kind": "fixed", "text": line}
    label = labelled(line)
    if isinstance(label, str):
        return {"kind": "said", "text": label}
    return {"kind": "named", "label": label[0], "text": label[1]}


def _prose(cells: Sequence[str]) -> str:
    """The class of a column of words: one of sentences keeps some width on a phone."""
    return "prose" if max(map(len, cells), default=0) > _SENTENCE else ""
