"""A chart: a plotly figure as plain data, the table that says the same, and one sentence that sums
it up."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.units import show

Figure = dict[str, Any]
Cell = str | float | int | bool | None

_PLAIN = {"text", "1", "number"}
GIB = 2.0**30

# color-blind safe (Paul Tol, "bright" and "muted"); on a dark ground each is drawn as its lighter
# twin
BLUE, INDIGO, RED, GREEN, SAND, PURPLE, CYAN, GREY = (
    "#4477aa",
    "#332288",
    "#aa2233",
    "#228833",
    "#ddcc77",
    "#aa4499",
    "#66ccee",
    "#888888",
)
DARK_TWINS = {
    "#332288": "#8f80e8",
    "#4477aa": "#6ea4dc",
    "#228833": "#4fb965",
    "#882255": "#d7689f",
    "#aa4499": "#d77fc8",
    "#aa2233": "#ff7b86",
    "#117733": "#46b56f",
    "#999933": "#c2c25a",
    "#44aa99": "#5fc9b7",
    "#cc6677": "#e58a99",
    "#222222": "#e6e8ec",
    "#555555": "#8d95a1",
    "#888888": "#a6adb8",
    "#bbbbbb": "#5c646f",
    "#666666": "#b6bdc8",
    "#dddddd": "#3a414b",
    "#e6e6e6": "#2c333d",
    "#ffffff": "#161a20",
}
GRID = {"gridcolor": "#e6e6e6", "zerolinecolor": "#888888"}


@dataclass(frozen=True)
class Column:
    """A column of the table. unit: as planner.units.show knows it, or text, number, % (of a
    share)."""

    title: str
    unit: str = "text"


@dataclass(frozen=True)
class Chart:
    """`choices` are variants of the figure: (label, what plotly's restyle takes); `columns` and
    `rows` are the table twin."""

    name: str
    title: str
    summary: str
    figure: Figure
    columns: tuple[Column, ...]
    rows: list[list[Cell]]
    caption: str = ""
    choices: list[dict[str, Any]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """JSON-able: what the page draws and what /api gives."""
        return {
            "name": self.name,
            "title": self.title,
            "summary": self.summary,
            "caption": self.caption,
            "figure": self.figure,
            "choices": self.choices,
            "columns": [{"title": c.title, "unit": c.unit} for c in self.columns],
            "rows": self.rows,
            **self.extra,
        }


def cell_text(value: Cell, unit: str) -> str:
    """A cell as people read it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if unit == "%":
        return f"{100 * value:.1f} %"
    if unit == "number":
        return (
            f"{value:,.4g}"
            if isinstance(value, float) and not value.is_integer()
            else f"{value:,.0f}"
        )
    if unit == "USD":
        return f"{value:,.0f} USD" if abs(value) >= 100 else f"{value:,.2f} USD"
    if unit == "tokens/s":
        return f"{value:,.0f} tokens/s"
    return show(float(value), unit)


def csv_text(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> str:
    """The table with full digits, units in the header. Text that a spreadsheet would take for a
    formula is quoted."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(
        [
            c.title if c.unit in _PLAIN | {"text"} else f"{c.title} ({_base(c.unit)})"
            for c in columns
        ]
    )
    table.writerows([[_safe(value) for value in row] for row in rows])
    return out.getvalue()


def _base(unit: str) -> str:
    return {"traffic": "B", "count": "", "%": "share"}.get(unit, unit)


def _safe(value: Cell) -> Cell:
    risky = isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{value}" if risky else value


def text_of(values: Sequence[float], unit: str) -> list[str]:
    """Hover texts."""
    return [show(value, unit) for value in values]


def words(name: str) -> str:
    """A key as words."""
    return name.replace("_", " ")
