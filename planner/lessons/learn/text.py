"""The text of a lesson with its figures: paragraphs, formulas, tables, charts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.lessons.documents import (
    LessonChart,
    LessonFigure,
    LessonItem,
    LessonSection,
    LessonTable,
)
from planner.lessons.learn.expression import Missing, Names, value_of
from planner.lessons.learn.written import ChartOf, Written
from planner.lessons.view import shown
from planner.units import percent

_FIGURE = re.compile(r"\{\{\s*(.*?)\s*(?:\|\s*([^|}]+?)\s*)?\}\}", re.DOTALL)
_BLOCK = re.compile(
    r"\{\{\s*(formula|parts|chart|command)\s+(.+?)\s*(?:\|\s*([^|}]+?)\s*)?\}\}", re.DOTALL
)
_NONE = "-"


def filled(text: str, names: Names) -> str:
    """A text with its figures."""
    template, figures = taken_apart(text, names)
    return template.format(*figures)


def taken_apart(text: str, names: Names) -> tuple[str, list[str]]:
    """A text with {0}, {1} for its figures, and the figures as they are read."""
    figures: list[str] = []

    def replaced(match: re.Match[str]) -> str:
        figures.append(_read(match[1], match[2] or "", names))
        return f"{{{len(figures) - 1}}}"

    return _FIGURE.sub(replaced, text), figures


def _read(expression: str, unit: str, names: Names) -> str:
    try:
        return shown(value_of(expression, names), unit)
    except (Missing, ZeroDivisionError):
        return _NONE


@dataclass(frozen=True)
class Computed:
    """A lesson at some inputs. names: what an expression's names stand for; moved: the same at
    other values of inputs."""

    written: Written
    values: Mapping[str, Any]
    names: Names
    moved: Callable[[Mapping[str, Any]], Names]
    figures: Mapping[str, LessonFigure]
    commands: Mapping[str, str]


def sections(computed: Computed) -> list[LessonSection]:
    """The text part by part, the questions last."""
    first, *others = re.split(r"^## ", computed.written.text, flags=re.MULTILINE)
    out = [LessonSection("", _items(first, computed))]
    for part in others:
        title, _, body = part.partition("\n")
        out.append(LessonSection(title.strip(), _items(body, computed)))
    items = [
        _question(question.ask, question.answer, computed.names)
        for question in computed.written.questions
    ]
    return [*out, *([LessonSection("Questions", items)] if items else [])]


def _question(ask: str, answer: str, names: Names) -> LessonItem:
    text, figures = taken_apart(f"{ask}\0{answer}", names)
    first, second = text.split("\0")
    return LessonItem(text=first, answer=second, figures=figures)


def _items(body: str, computed: Computed) -> list[LessonItem]:
    paragraphs = re.split(r"\n\s*\n", body.strip())
    return [_item(paragraph.strip(), computed) for paragraph in paragraphs if paragraph.strip()]


def _item(paragraph: str, computed: Computed) -> LessonItem:
    block = _BLOCK.fullmatch(paragraph)
    if block is None:
        text, figures = taken_apart(paragraph, computed.names)
        return LessonItem(text=text, figures=figures)
    kind, name, unit = block.groups()
    if kind == "parts":
        return LessonItem(table=_parts(name, unit or "", computed.names))
    if kind == "chart":
        return LessonItem(chart=_chart(computed.written.charts[name], computed))
    if kind == "command":
        return LessonItem(command=computed.commands[name])
    return LessonItem(formula=computed.figures[name])


def _parts(expression: str, unit: str, names: Names) -> LessonTable:
    """A ledger as a table, the largest part first."""
    try:
        parts = value_of(expression, names)
    except Missing:
        return LessonTable(["part", ">size", ">share"], [])
    whole = sum(parts.values())
    rows = [
        [name.replace("_", " "), shown(size, unit), percent(size / whole)]
        for name, size in sorted(parts.items(), key=lambda pair: -pair[1])
        if size > 0
    ]
    return LessonTable(["part", ">size", ">share"], [*rows, ["together", shown(whole, unit), ""]])


def _chart(chart: ChartOf, computed: Computed) -> LessonChart:
    """Every line of a chart at every point."""
    series: dict[str, list[float | None]] = {name: [] for name in chart.series}
    for point in chart.values:
        names = computed.moved({chart.over: point})
        for name, expression in chart.series.items():
            series[name].append(_height(expression, names))
    return LessonChart(
        title=chart.title,
        kind=chart.kind,
        across=chart.across,
        unit=chart.unit,
        log=chart.log,
        points=list(chart.values),
        labels=[_label(point, chart.over_unit) for point in chart.values],
        series=series,
        now=computed.values.get(chart.over),
    )


def _label(point: float | str, unit: str) -> str:
    """A point of an axis, without zeros that say nothing."""
    return shown(point, unit) if unit or isinstance(point, str) else f"{point:,.10g}"


def _height(expression: str, names: Names) -> float | None:
    try:
        return float(value_of(expression, names))
    except (Missing, ZeroDivisionError):
        return None
