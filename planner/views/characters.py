"""Charts in characters, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.units import show
from planner.views.view import Caption, Fixed

_WIDTH, _HEIGHT = 64, 16  # characters of curves
_MARKS = "*o+x#@%&"
_POINTS = (64, 14)  # columns and rows of points


def chart_lines(
    curves: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    ideal: bool = False,
    x_unit: str = "",
    y_unit: str = "count",
) -> list[str]:
    """Curves in characters, both axes logarithmic; ideal: dots in proportion to the first point of
    the first curve; units: of the ends of the axes."""
    points = [point for _, curve in curves for point in curve]
    low_x, high_x = min(x for x, _ in points), max(x for x, _ in points)
    low_y, high_y = min(y for _, y in points), max(y for _, y in points)
    rows = [[" "] * _WIDTH for _ in range(_HEIGHT)]

    def put(x: float, y: float, mark: str) -> None:
        across = math.log(x / low_x) / math.log(high_x / low_x) if high_x > low_x else 0.0
        up = math.log(y / low_y) / math.log(high_y / low_y) if high_y > low_y else 0.0
        if 0 <= up <= 1:
            rows[round((1 - up) * (_HEIGHT - 1))][round(across * (_WIDTH - 1))] = mark

    if ideal and high_x > low_x:
        first_x, first_y = curves[0][1][0]
        for i in range(_WIDTH):
            x = low_x * (high_x / low_x) ** (i / (_WIDTH - 1))
            put(x, first_y * x / first_x, ".")
    for i, (_, curve) in enumerate(curves):
        for x, y in curve:
            put(x, y, _MARKS[i % len(_MARKS)])
    labels = {0: show(high_y, y_unit), _HEIGHT - 1: show(low_y, y_unit)}
    left, right = (show(x, x_unit) if x_unit else f"{x:,g}" for x in (low_x, high_x))
    margin = max(8, *map(len, labels.values()))
    lines = [
        *(f"{labels.get(i, ''):>{margin}} |{''.join(row).rstrip()}" for i, row in enumerate(rows)),
        " " * (margin + 1) + "+" + "-" * _WIDTH,
        " " * (margin + 2) + left.ljust(_WIDTH - 12) + right.rjust(12),
    ]
    return [Fixed(line) for line in lines]


def legend(labels: Sequence[str], more: str = "") -> str:
    """Marks of the curves in characters."""
    return Caption(
        "  ".join(f"{_MARKS[i % len(_MARKS)]} {label}" for i, label in enumerate(labels)) + more
    )


def points_lines(x: list[float], y: list[float], x_title: str, y_title: str) -> list[str]:
    """Points as lines of text: y upwards, x to the right."""
    width, height = _POINTS
    low_x, high_x, low_y, high_y = min(x), max(x), min(y), max(y)
    cells = [[" "] * width for _ in range(height)]
    for a, b in zip(x, y, strict=True):
        column = round((a - low_x) / (high_x - low_x or 1.0) * (width - 1))
        row = round((high_y - b) / (high_y - low_y or 1.0) * (height - 1))
        cells[row][column] = "*"
    labels = {0: f"{high_y:.4g}", height - 1: f"{low_y:.4g}"}
    margin = max(len(y_title), *(len(text) for text in labels.values()))
    lines = [f"{y_title:>{margin}}"]
    lines += [
        f"{labels.get(i, ''):>{margin}} |{''.join(line).rstrip()}" for i, line in enumerate(cells)
    ]
    lines.append(f"{'':>{margin}} +{'-' * width}")
    ends = f"{low_x:.4g}", f"{high_x:.4g} {x_title}"
    lines.append(
        f"{'':>{margin}}  {ends[0]}{ends[1]:>{max(width - len(ends[0]), len(ends[1]) + 1)}}"
    )
    return [Fixed(line) for line in lines]
