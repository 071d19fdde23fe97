"""The scenario in a strip below the bar of tabs: every value that no page filled in by itself,
where it comes from, and the address without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from planner.specs.options import Options, rows
from planner.views.view import words
from web.state import DEFAULT, MARK, TEXTS, Pairs
from web.texts import TEXTS as SENTENCES
from web.texts import text

_ALWAYS = ("model", "gpu", "gpus", "tokens")  # that are named where they are defaults, too
_MOST = 48  # characters of a value


@dataclass(frozen=True)
class Chip:
    """A value of the scenario. kind: typed, file, search, default or another origin; where: it is
    from, in words; without: the address that leaves it out, empty where nothing would change."""

    label: str
    value: str
    kind: str
    where: str
    without: str


def chips(path: str, pairs: Pairs) -> list[Chip]:
    """The strip of an address, in its order; what the search filled in is counted."""
    table, marks = rows(Options), {n: t for n, t in pairs if n.startswith(MARK)}
    given: dict[str, list[str]] = {}
    for name, value in pairs:
        if value and (name in table or name in TEXTS):
            given.setdefault(name, []).append(value)
    out, searched = [], 0
    for name, values in given.items():
        kind, where = _origin(marks, name, values)
        if kind == "search":
            searched += 1
            continue
        if kind == "default" and name not in _ALWAYS:
            continue
        label = SENTENCES["group_calibration"] if name == "calibration" else _label(name)
        shown = text("pasted") if name in TEXTS else ", ".join(values)
        shown = shown if len(shown) <= _MOST else f"{shown[: _MOST - 1]}…"
        out.append(Chip(label, shown, kind, where, _without(path, pairs, name, kind)))
    if searched:
        out.append(Chip(text("chips_searched", count=searched), "", "search", "", ""))
    return out


def _label(name: str) -> str:
    row = rows(Options).get(name)
    return (row.says.label if row else "") or words(name).capitalize()


def _origin(marks: Mapping[str, str], name: str, values: list[str]) -> tuple[str, str]:
    """The kind of origin and its words, as the mark of a value says; any other value than the mark
    has was typed."""
    mark = marks.get(f"{MARK}{name}", "")
    kind, where, value = [*mark.split("|", 2), "", ""][:3]
    if not mark or value not in values:
        return "typed", text("origin_typed")
    if mark.startswith(DEFAULT):
        return "default", text("origin_default")
    return kind, text("origin_from", where=where)


def _without(path: str, pairs: Pairs, name: str, kind: str) -> str:
    """The address with a value left out."""
    if kind == "default":
        return ""
    kept = [(n, t) for n, t in pairs if n.removeprefix(MARK) != name]
    return f"{path}?{urlencode(kept)}"
