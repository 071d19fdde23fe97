"""Charts of lessons as HTML that needs no script: bars as boxes, lines as a drawing that stretches,
with labels as text beside it, so that a phone shows them in full size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from planner.lessons.documents import LessonChart
from planner.lessons.view import height

_COLORS = 6
_MOST_LABELS = 7  # along an axis
_ROOM = 1.05  # of the axis above the highest point


class Bar(NamedTuple):
    """One part of a bar: where it begins and how long it is, in per cent of the longest."""

    name: str
    color: int
    width: float
    shown: str


class Row(NamedTuple):
    """The bars of one point, in one line (stack) or one below the other; now: whether the inputs
    are at this point."""

    label: str
    bars: list[list[Bar]]
    totals: list[str]
    now: bool


class Tick(NamedTuple):
    """A label on an axis, in per cent of its length."""

    at: float
    shown: str


class Curve(NamedTuple):
    """A line as the points of a drawing of 100 by 100."""

    name: str
    color: int
    points: str
    dots: list[tuple[float, float, str]]


class Drawn(NamedTuple):
    """Values that the template draws."""

    names: list[tuple[str, int]]
    rows: list[Row]
    curves: list[Curve]
    x: list[Tick]
    y: list[Tick]
    now: float | None


def drawn(chart: LessonChart) -> Drawn:
    """A chart in per cent of its own size."""
    names = [(name, i % _COLORS) for i, name in enumerate(chart.series)]
    if chart.kind == "lines":
        return _lines(chart, names)
    return Drawn(names, _rows(chart, names), [], [], [], None)


def _rows(chart: LessonChart, names: Sequence[tuple[str, int]]) -> list[Row]:
    columns = [[height or 0.0 for height in heights] for heights in chart.series.values()]
    is_stack = chart.kind == "stack"
    ends = [sum(c[i] for c in columns) for i in range(len(chart.labels))] if is_stack else []
    longest = max(ends or [max(column) for column in columns], default=0.0) or 1.0
    out = []
    for i, label in enumerate(chart.labels):
        bars = [
            Bar(name, color, 100 * column[i] / longest, height(column[i], chart.unit))
            for (name, color), column in zip(names, columns, strict=True)
        ]
        totals = [height(ends[i], chart.unit)] if is_stack else [bar.shown for bar in bars]
        lines = [bars] if is_stack else [[bar] for bar in bars]
        out.append(Row(label, lines, totals, chart.points[i] == chart.now))
    return out


def _lines(chart: LessonChart, names: Sequence[tuple[str, int]]) -> Drawn:
    heights = [
        height for column in chart.series.values() for height in column if height is not None
    ]
    xs = [float(point) for point in chart.points]
    logs = "x" in chart.log, "y" in chart.log
    low, high = _ends(heights, logs[1])
    across = [_at(x, min(xs), max(xs), logs[0]) for x in xs]
    curves = []
    for (name, color), column in zip(names, chart.series.values(), strict=True):
        dots = [
            (x, 100 - _at(y, low, high, logs[1]), f"{name}, {label}: {height(y, chart.unit)}")
            for x, y, label in zip(across, column, chart.labels, strict=True)
            if y is not None
        ]
        curves.append(Curve(name, color, " ".join(f"{x:.2f},{y:.2f}" for x, y, _ in dots), dots))
    every = -(-len(xs) // _MOST_LABELS)
    ticks = [Tick(x, label) for x, label in zip(across, chart.labels, strict=True)][::every]
    up = [
        Tick(100 - _at(y, low, high, logs[1]), height(y, chart.unit))
        for y in _round(low, high, logs[1])
    ]
    now = next(
        (x for x, point in zip(across, chart.points, strict=True) if point == chart.now), None
    )
    return Drawn(list(names), [], curves, ticks, up, now)


def _ends(heights: Sequence[float], is_log: bool) -> tuple[float, float]:
    high = max(heights, default=1.0) or 1.0
    if not is_log:
        return min(0.0, min(heights, default=0.0)), high * _ROOM
    low = min((height for height in heights if height > 0), default=high / 10)
    return low / _ROOM, max(high * _ROOM, low * 10)


def _at(value: float, low: float, high: float, is_log: bool) -> float:
    """A place on an axis, in per cent."""
    if is_log:
        value, low, high = (math.log(max(number, 1e-300)) for number in (value, low, high))
    return 100 * (value - low) / (high - low) if high > low else 50.0


def _round(low: float, high: float, is_log: bool) -> list[float]:
    """Round numbers on an axis: powers of ten, or steps of 1, 2 or 5."""
    if is_log:
        first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
        every = max(1, -(-(last - first + 1) // _MOST_LABELS))
        return [10.0**power for power in range(first, last + 1, every)] or [low, high]
    wanted = (high - low) / 4
    step = 10 ** math.floor(math.log10(wanted))
    step *= next((factor for factor in (1, 2, 5) if factor * step >= wanted), 10)
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
