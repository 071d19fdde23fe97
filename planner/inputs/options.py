"""Options from names and values, and numbers from options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.specs.base import PlanError
from planner.specs.options import Options, Record, refuse, rows, why_not
from planner.specs.options.checked import read
from planner.specs.options.words import meaning, reading
from planner.units import UnitError, is_bare, parse, parse_count


def read_options(given: Mapping[str, Any]) -> Options:
    """Options from a mapping of names to values; a wrong one is a PlanError naming its flag."""
    options = read(Options, given)
    table = rows(Options)
    spelled = tuple(
        (name, text)
        for name, text in given.items()
        if isinstance(text, str) and reading(table[name], text, getattr(options, name))
    )
    return options.changed(spelled=spelled) if spelled else options


def readings(options: Options) -> list[str]:
    """How words were read that an answer would else leave open: "--seq-len 128k is 131,072
    tokens"."""
    table = rows(Options)
    still = [
        (table[name], text, getattr(options, name))
        for name, text in options.spelled
        if meaning(table[name], text) == getattr(options, name)
    ]
    return [reading(row, text, value) for row, text, value in still]


def read_without_model(given: Mapping[str, Any], verb: str) -> Options:
    """Options of a verb that looks at no model. Raises PlanError for those it does not take."""
    if "model" in given:
        raise PlanError("--model", given["model"], why_not(rows(Options)["model"], verb))
    options = read_options({**given, "model": "none"})
    refuse(options, verb, besides="model")
    return options


def number(options: Record, name: str) -> float | None:
    """An option with a unit, in base units; None where it is not given. Raises PlanError."""
    row, given = rows(type(options))[name], getattr(options, name)
    if given is None:
        return None
    says, such = row.says, f"write for example '{row.says.example}'"
    try:
        value = parse_count(given) if says.unit == "tokens" else parse(given, says.unit)
    except UnitError as error:
        raise PlanError(row.flag, given, f"{error}; {such}") from None
    if says.needs_unit and is_bare(given):
        raise PlanError(row.flag, given, f"needs its unit: {such}")
    low, high = (says.least if says.above is None else says.above), says.most
    if (
        (says.above is not None and value <= says.above)
        or (says.least is not None and value < says.least)
        or (high is not None and value > high)
    ):
        if high == 1:
            remedy = f"is a share between 0 and 1: {such}"
        elif high is not None:
            remedy = f"must be between {low:g} and {high:g}"
        else:
            remedy = "must be positive" if says.above == 0 else "must not be negative"
        raise PlanError(row.flag, given, remedy)
    return value
