"""Dimensions of a comparison: `gpu=rtx4090,a100`, `gpus=8..4096`, `strategy=ddp,zero3` as typed
become options."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planner.inputs.usual import FAMILIES
from planner.specs.base import PlanError
from planner.specs.options import Options, Row, flag, taken
from planner.specs.options.checked import from_text
from planner.specs.options.words import counter
from planner.units import UnitError, parse_count

MOST_POINTS = 4_000  # requests of one comparison: 20 s of two cores where each has few layouts
_MOST_VALUES = 20_000  # of one range
_SEARCHED = "search"  # the word for an option that is left out

# options that may vary: all options of a request except files
_VARIED = {row.name: row for row in taken(Options, "compare") if row.says.file != "read"}
_NUMBER = r"[-+]?\d[\d_]*+(?:\.\d++)?(?:[eE][-+]?\d++)?(?:[kKmMgGbBtT](?![A-Za-z/]))?"
_RANGE = re.compile(
    rf"({_NUMBER})\s*+\.\.\s*+({_NUMBER})\s*+(?:([*+])\s*+({_NUMBER}))?(.*)", re.DOTALL
)


@dataclass(frozen=True)
class Value:
    """One value of a dimension: how it is called, the options it sets, and its number on an axis if
    it has one."""

    label: str
    update: dict[str, Any]
    number: float | None = None


@dataclass(frozen=True)
class Dimension:
    """A name and the values it takes, in the order given."""

    name: str
    values: tuple[Value, ...]


def varied(text: str) -> Dimension:
    """`--vary NAME=A,B,...`: any option, or strategy; the word "search" leaves an option out."""
    name, words = _split(text, "--vary")
    if name != "strategy":
        return Dimension(name, tuple(_value(name, word, "--vary") for word in words))
    for word in words:
        if word not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise PlanError("--vary", word, f"is not a strategy; strategies are {known}")
    return Dimension(name, tuple(Value(word, dict(FAMILIES[word])) for word in words))


def swept(text: str) -> Dimension:
    """`--sweep NAME=8..4096` (doubling), `NAME=8..512*4`, `NAME=16..128+16` or a list: any option
    that is a number."""
    name, words = _split(text, "--sweep")
    if not _VARIED[name].is_number:
        numeric = ", ".join(n for n, row in _VARIED.items() if row.is_number)
        raise PlanError("--sweep", name, f"is not a number; sweep one of {numeric}, or use --vary")
    values = [value for word in words for value in _expanded(_VARIED[name], word, text)]
    if len(set(values)) != len(values):
        raise PlanError("--sweep", text, "names a value twice; give each once")
    return Dimension(name, tuple(_value(name, value, "--sweep") for value in values))


def _split(text: str, option: str) -> tuple[str, list[str]]:
    """The name of an option and the words after `=`, which are values or ranges."""
    name, sign, rest = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    words = [word.strip() for word in rest.split(",")]
    if not sign or not name or not all(words):
        example = "gpu=rtx4090,a100" if option == "--vary" else "gpus=8..4096"
        raise PlanError(option, text, f"must be NAME=VALUES, as in {option} {example}")
    if name not in _VARIED and not (option == "--vary" and name == "strategy"):
        extra = "strategy, " if option == "--vary" else ""
        raise PlanError(option, name, f"is not an option; options are {extra}{', '.join(_VARIED)}")
    if len(set(words)) != len(words):
        raise PlanError(option, text, "names a value twice; give each once")
    return name, words


def _expanded(row: Row, text: str, whole: str) -> list[str]:
    """The values of one range, each as text; a word without `..` is itself."""
    if ".." not in text:
        return [text]
    match = _RANGE.fullmatch(text.strip())
    if not match:
        raise PlanError(
            "--sweep",
            whole,
            "is not a range; write FIRST..LAST (doubling), FIRST..LAST*FACTOR or FIRST..LAST+STEP",
        )
    first, last, step = (
        _count(row, match.group(i), whole) if match.group(i) else 2.0 for i in (1, 2, 4)
    )
    kind, unit = match.group(3) or "*", match.group(5).strip()
    if first > last or first <= 0:
        raise PlanError(
            "--sweep",
            whole,
            f"must go up from a positive number; {match.group(1)} to {match.group(2)} does not",
        )
    if (step <= 1) if kind == "*" else (step <= 0):
        raise PlanError(
            "--sweep", whole, "needs a factor above 1" if kind == "*" else "needs a step above 0"
        )
    count = math.log(last / first) / math.log(step) if kind == "*" else (last - first) / step
    if count >= _MOST_VALUES:
        raise PlanError(
            "--sweep", whole, f"has more than {_MOST_VALUES:,} values; take a larger step"
        )
    values = [
        first * step**i if kind == "*" else first + i * step
        for i in range(int(count * (1 + 1e-12)) + 1)
    ]
    return [f"{value:.12g} {unit}".strip() for value in values]


def _count(row: Row, text: str, whole: str) -> float:
    """A number of a range, written short as the option's own values are."""
    try:
        return counter(row)(text) if row.kind in (int, float) else parse_count(text)
    except UnitError as error:
        raise PlanError("--sweep", whole, str(error)) from None


def _value(name: str, text: str, option: str) -> Value:
    """A value of an option, checked as the option checks it."""
    if text == _SEARCHED:
        return Value(f"{name} searched", {name: None})
    row = _VARIED[name]
    try:
        value = from_text(row, text)
    except ValueError as error:
        raise PlanError(f"{option} {flag(name)}", text, str(error)) from None
    amount = float(value) if isinstance(value, int | float) else _number(text)
    return Value(text, {name: value}, amount if row.is_number else None)


def _number(text: str) -> float | None:
    """The number of a value for an axis; a unit is left off, since a dimension is in one unit or
    has no axis."""
    match = re.match(rf"^({_NUMBER})", text)
    return parse_count(match.group(1)) if match else None


def unit_of(text: str) -> str:
    """The unit of a value, "" where it has none."""
    match = re.match(rf"^{_NUMBER}\s*(.*)$", text)
    return match.group(1) if match else ""


def product(dimensions: Sequence[Dimension]) -> list[tuple[Value, ...]]:
    """Every combination, the last dimension running fastest."""
    size = math.prod(len(dimension.values) for dimension in dimensions)
    if size > MOST_POINTS:
        raise PlanError(
            "--sweep",
            size,
            f"requests are more than the {MOST_POINTS:,} of one comparison; take larger steps",
        )
    names = [dimension.name for dimension in dimensions]
    for name in names:
        if names.count(name) > 1:
            raise PlanError("--sweep", name, "is varied twice; give all its values at once")
    return list(itertools.product(*(dimension.values for dimension in dimensions)))
