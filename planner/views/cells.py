"""Columns of tables with their units, and cells as text: where numbers become text in every table,
whether it is printed, in a page, or behind a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from planner.inputs import tables
from planner.specs.document import Document, key
from planner.units import chance_text, percent, show, span

Cell = str | float | int | bool | tuple[float | None, float | None] | None

_PLAIN = {"text", "1", "number"}  # units that a heading does not name
_RIGHT, _UNIT = ">", "|"


class Column(Document):
    """A column of a table."""

    title: Annotated[str, key("heading")]
    unit: Annotated[
        str,
        key(
            "unit as planner.units.show knows it; text, number, % of a share, chance, x of a"
            " factor, or a number's format such as .3g; a leading + writes the sign"
        ),
    ] = "text"


def column(heading: str) -> Column:
    """A column of a heading "title|unit"; `>title` without a unit is text that is aligned as
    numbers are."""
    title, _, unit = heading.lstrip(_RIGHT).partition(_UNIT)
    return Column(title, unit or "text")


def is_right(heading: str) -> bool:
    """Whether a column is aligned to the right, as numbers are."""
    return heading.startswith(_RIGHT) or _UNIT in heading


def cell_text(value: Cell, unit: str, none: str = "–") -> str:
    """A cell as people read it; a pair is a range."""
    if value is None:
        return none
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return span(*value, unit)
    sign, name = unit.startswith("+"), unit.removeprefix("+")
    if name.startswith("%"):
        return percent(value, int(name[1:] or 1), sign)
    if name == "chance":
        return chance_text(value)
    if name == "x":
        return f"x {value:.3g}"
    if name[:1] in (".", ","):
        return format(value, unit)
    return show(float(value), "" if name in _PLAIN else name, sign=sign)


def csv_text(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> str:
    """The table with full digits, units in the header."""
    return tables.csv_text([c.title + _named(c.unit.lstrip("+")) for c in columns], rows)


def _named(unit: str) -> str:
    if unit in _PLAIN or unit[:1] in (".", ",", "x"):
        return ""
    return f" ({ {'traffic': 'B', 'count': '', '%': 'share'}.get(unit, unit) })"
