"""An axis of a drawing: from values to pixels, with ticks that are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_TICKS = 5  # about this many on a linear axis
_MOST = 9  # of a logarithmic one
_ROOM = 0.05  # beyond the last value, of the axis


@dataclass(frozen=True)
class Axis:
    """low, high: values at its ends, logarithms on a logarithmic axis, positions on one of
    categories; start, end: pixels there; ticks: (value, label)."""

    kind: str
    low: float
    high: float
    start: float
    end: float
    ticks: Sequence[tuple[float, str]]
    categories: dict[str, int]
    title: str = ""

    def at(self, value: Any) -> float:
        """The pixel of a value or of a category. A value that a logarithm has none of lies at the
        start."""
        if self.kind == "category":
            place = float(self.categories[str(value)])
        elif self.kind == "log":
            place = math.log10(value) if value > 0 else self.low
        else:
            place = float(value)
        return self.pixel(place)

    def pixel(self, place: float) -> float:
        share = (place - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    @property
    def step(self) -> float:
        """Pixels of one category."""
        return abs(self.end - self.start) / max(self.high - self.low, 1e-9)


def axis(spec: dict[str, Any], values: Sequence[Any], start: float, end: float) -> Axis:
    """An axis of what a figure says of it, for these values between these pixels."""
    title = spec.get("title", {}).get("text", "")
    names = [value for value in values if isinstance(value, str)]
    if spec.get("type") == "category" or names or "categoryarray" in spec:
        order = [str(name) for name in spec.get("categoryarray", dict.fromkeys(map(str, values)))]
        shown = spec.get("ticktext")
        known = spec.get("tickvals", order)
        labels = dict(zip(map(str, known), map(str, shown or known), strict=False))
        ticks = [(float(i), labels.get(name, "")) for i, name in enumerate(order)]
        at = {name: i for i, name in enumerate(order)}
        return Axis("category", -0.5, len(order) - 0.5, start, end, ticks, at, title)
    numbers = [float(value) for value in values if value is not None]
    if spec.get("type") == "log":
        return _log(spec, [value for value in numbers if value > 0] or [1.0], start, end, title)
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    if spec.get("rangemode") == "tozero":
        low, high = min(low, 0.0), max(high, 0.0)
    if "range" in spec:
        low, high = spec["range"]
    else:
        span = (high - low) or abs(high) or 1.0
        low, high = (low - _ROOM * span if low < 0 else max(low - _ROOM * span, 0.0), high)
        low, high = (
            (0.0 if spec.get("rangemode") == "tozero" and low >= 0 else low),
            (high + _ROOM * span),
        )
    ticks = [(value, label(value)) for value in _linear(low, high)]
    return Axis("linear", low, high, start, end, ticks, {}, title)


def _log(
    spec: dict[str, Any], numbers: Sequence[float], start: float, end: float, title: str
) -> Axis:
    low, high = math.log10(min(numbers)), math.log10(max(numbers))
    span = max(high - low, 0.1)
    low, high = low - _ROOM * span, high + _ROOM * span
    if "tickvals" in spec:
        marks = list(zip(spec["tickvals"], map(str, spec["ticktext"]), strict=True))
    else:
        powers = range(math.floor(low), math.ceil(high) + 1)
        leads = (1,) if high - low > _MOST / 3 else (1, 2, 5)
        marks = [
            (lead * 10.0**power, label(lead * 10.0**power)) for power in powers for lead in leads
        ]
    inside = [(math.log10(v), text) for v, text in marks if v > 0 and low <= math.log10(v) <= high]
    if len(inside) <= 1 and "tickvals" not in spec:  # between two powers of ten
        ends = (10**low, 10**high)
        inside = [(math.log10(v), label(v)) for v in _linear(*ends) if v > 0]
    some = inside[:: math.ceil(len(inside) / _MOST) or 1] if inside else []
    return Axis("log", low, high, start, end, some, {}, title)


def _linear(low: float, high: float) -> list[float]:
    """Round values between two."""
    raw = (high - low) / _TICKS
    if raw <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(lead * power for lead in (1, 2, 5, 10) if lead * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


_SHORT = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k"))


def label(value: float) -> str:
    """A value beside an axis."""
    for least, word in _SHORT:
        if abs(value) >= least:
            return f"{value / (1e3 if word == 'k' else least):.4g}{word}"
    return f"{value:,.4g}"
