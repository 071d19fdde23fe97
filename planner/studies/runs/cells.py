"""Cells of a row of a runs table: text, numbers, and the words of its `options` cell."""

from __future__ import annotations

import math

Row = dict[str, str]


class Skip(ValueError):
    """A row that cannot be expressed, with the reason."""


def number(row: Row, name: str, default: float | None = None) -> float:
    text = row.get(name, "")
    if text == "":
        if default is None:
            raise Skip(f"{name} is empty")
        return default
    try:
        value = float(text)
    except ValueError:
        raise Skip(f"{name} is {text!r}, no number") from None
    if not math.isfinite(value) or value < 0:
        raise Skip(f"{name} is {text!r}, out of range")
    return value


def whole(row: Row, name: str, default: float | None = None, minimum: int = 0) -> int:
    value = number(row, name, default)
    if value != int(value):
        raise Skip(f"{name} is {value}, no whole number")
    if value < minimum:
        raise Skip(f"{name} is {value:g}; it must be at least {minimum}")
    return int(value)


def options_of(row: Row) -> dict[str, str]:
    """The words of the `options` cell, "1" for those without a value."""
    pairs = (part.partition("=") for part in row.get("options", "").split(";") if part)
    return {key.strip(): value.strip() or "1" for key, _, value in pairs}


def with_options(row: Row, words: dict[str, str]) -> Row:
    """The row with these words in place of its own: what `options_of` reads."""
    return {**row, "options": ";".join(f"{key}={value}" for key, value in words.items())}
