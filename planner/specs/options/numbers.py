"""Numbers of options: read one way and held to the bounds of their rows, whoever gives them."""

from __future__ import annotations

import math
import re

from planner.error import PlanError
from planner.specs.options.row import Row
from planner.specs.options.table import rows
from planner.units import UnitError, is_bare, parse, parse_count, show, unit_factor

_NOT_POSITIVE = "is not positive; "
_SIZES = {"B": "traffic", "B/s": "B/s"}  # written with the prefix that suits them
_NUMBER = re.compile(r"\s*([^\sA-Za-z%$/]+)")  # a number without its unit, as an error quotes it


def number(options: object, name: str) -> float | None:
    """An option of a record with a unit, in base units; None where it is not given. Raises
    PlanError."""
    return None if getattr(options, name) is None else number_in(options, name)[0]


def number_in(options: object, name: str) -> tuple[float, str]:
    """An option with a unit that is given, in base units, and which of its units that was in.
    Raises PlanError."""
    row, given = rows(type(options))[name], getattr(options, name)
    try:
        return amount_in(row, given)
    except ValueError as error:
        raise PlanError(row.flag, given, str(error)) from None


def amount(row: Row, given: str | float | int) -> float:
    """An option with a unit, in base units. Raises ValueError with a sentence."""
    return amount_in(row, given)[0]


def amount_in(row: Row, given: str | float | int) -> tuple[float, str]:
    """The amount with the unit of the option in whose dimension it was given. Raises ValueError
    with a sentence."""
    says, such = row.says, f"write for example '{row.says.example}'"
    try:
        value, unit = _read(row, given)
        bare = bool(says.needs_unit) and is_bare(given)
    except UnitError as error:
        raise ValueError(f"{error}; {such}") from None
    if bare and value != 0:  # nothing is nothing in every unit
        likely = " or ".join(f"'{_digits(given)} {word}'" for word in says.needs_unit)
        raise ValueError(f"needs its unit: {likely}? {says.help}")
    within(row, value, unit)
    return value, unit


def _read(row: Row, given: str | float | int) -> tuple[float, str]:
    """(value in base units, unit of its dimension). Raises UnitError."""
    says = row.says
    if says.unit == "tokens":
        return parse_count(given), says.unit
    try:
        return parse(given, says.unit), says.unit
    except UnitError:
        if not says.or_unit:
            raise
    try:
        return parse(given, says.or_unit), says.or_unit
    except UnitError as error:
        raise UnitError(f"{error}; {says.unit} or {says.or_unit} is needed") from None


def _digits(given: object) -> str:
    parsed = _NUMBER.match(str(given))
    return parsed[1] if parsed else str(given)


def within(row: Row, value: float, unit: str = "") -> None:
    """Checks a number against the bounds of its option. Raises ValueError with a sentence. value:
    in base units of `unit`, or in the option's count where that is ""."""
    says, factor = row.says, unit_factor(unit)[1] if unit else 1.0
    low = -math.inf if says.least is None else says.least * factor
    high = math.inf if says.most is None else says.most * factor
    if low <= value <= high or (says.or_zero and value == 0):
        return
    if says.unit == "1" and says.most is not None:
        remedy = f"is a share between {0 if says.or_zero else low:g} and {says.most:g}"
    else:
        sign = "" if value > 0 else "is negative; " if low == 0 or says.or_zero else _NOT_POSITIVE
        remedy = f"{sign}must be {bounds(row, unit)}"
    raise ValueError(remedy + (f": write for example '{says.example}'" if says.unit else ""))


def bounds(row: Row, unit: str = "") -> str:
    """The bounds of an option in words: "between 1 and 1,000,000"."""
    says = row.says
    if says.least is None or says.most is None:
        return ""
    word = unit or says.unit or says.each or says.reads
    if word in _SIZES:
        text = f"between {show(says.least, _SIZES[word])} and {show(says.most, _SIZES[word])}"
    else:
        text = f"between {says.least:,.15g} and {says.most:,.15g}"
        text += f" {word}" if word not in ("", "1", "context") else ""
    return f"0, or {text}" if says.or_zero else text


def several(row: Row, text: str) -> list[float]:
    """The numbers of a text, separated by commas, in base units and within bounds. Raises
    ValueError with a sentence."""
    unit = row.says.each
    values = []
    for part in text.split(","):
        value = parse(part, unit)
        within(row, value, unit)
        values.append(value)
    return values
