"""Programs on top of transformers' Trainer and of TRL: their own arguments in the words of those,
and their defaults (dialects.toml). What they say is added to the arguments of a file; a default
gives way to all that the file says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from planner.formats.record import Value
from planner.inputs.readers import read_toml

_TABLE = Path(__file__).with_name("dialects.toml")
_OFF = (None, False, 0, "0", "false", "False", "no", "")


def program_of(values: Mapping[str, Value]) -> str:
    """The program whose own arguments these are; "" for none that is known."""
    for name, row in _table().items():
        marked = any(mark in values for mark in row["marks"])
        beside = not row.get("beside") or any(mark in values for mark in row["beside"])
        if marked and beside and not any(mark in values for mark in row.get("without", ())):
            return name
    return ""


def added(values: Mapping[str, Value]) -> dict[str, Value]:
    """Arguments that a program's own arguments say, and its defaults, by the trainer's names."""
    program = program_of(values)
    if not program:
        return {}
    row = _table()[program]
    out: dict[str, Value] = {}
    for theirs, name in row.get("same", {}).items():
        if theirs in values:
            out[name] = _aliased(values[theirs], values[theirs].value, theirs)
    for where in row.get("where", ()):
        theirs = where["argument"]
        if theirs in values and _holds(values[theirs].value, where):
            for name, value in where["is"].items():
                out[name] = _aliased(values[theirs], value, theirs)
    for name, value in row.get("defaults", {}).items():
        out.setdefault(name, Value(value, program=program))
    return {name: value for name, value in out.items() if name not in values}


def irrelevant(values: Mapping[str, Value]) -> Iterator[str]:
    """Arguments of the program that move neither memory nor time, or that others repeat."""
    program = program_of(values)
    patterns = _table()[program].get("irrelevant", ()) if program else ()
    for name in values:
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            yield name


def _aliased(given: Value, value: Any, theirs: str) -> Value:
    return Value(value, given.line, given.unknown, given.file, alias=theirs)


def _holds(value: Any, where: Mapping[str, Any]) -> bool:
    return value == where["value"] if "value" in where else value not in _OFF


@cache
def _table() -> Mapping[str, Any]:
    return read_toml(_TABLE.read_text("utf-8"))
