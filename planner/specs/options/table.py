"""The rows of a record of options, from its fields and from the options.json beside its module:
help, label, bounds and the like of each option, by record and field.

A field of a record has its type and default in Python, and the rest in its row, whose columns are
the fields of `option`. Code is referred to by name: "verbs": "REQUESTS - METHODS - batch" takes
sets of `verbs` and words of verbs; "{OF_METHODS}" in a text, and a bound, condition, reader or
group that is a name, is a constant of `verbs` or `named`; "aliases" a kind of words.json.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from typing import get_type_hints as hints_of

from planner import plugins
from planner.specs.options import aliases, named, verbs
from planner.specs.options.row import Row, option

_NAME_OF_FILE = "options.json"
COLUMNS = frozenset(option.__dataclass_fields__)
_VERBS = verbs.REQUESTS | verbs.LINKS | verbs.INPUT
_NAME = re.compile(r"\{(\w+)\}")


@cache
def tables(file: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Rows of a file by name of the record with its module, and by name of the option; empty where
    the file does not exist."""
    if not file.is_file():
        return {}
    out: dict[str, dict[str, dict[str, Any]]] = json.loads(file.read_text("utf-8"))
    return out


def file_of(record: type) -> Path:
    """The file with the rows of a record: options.json beside its module."""
    return Path(sys.modules[record.__module__].__file__ or "").with_name(_NAME_OF_FILE)


def key(record: type) -> str:
    """Name of a record in the file: "layout.LayoutOptions"."""
    return f"{record.__module__.rpartition('.')[2]}.{record.__name__}"


def declarations(record: type, fields: list[str]) -> dict[str, option]:
    """Declarations of the fields of a record from the file, in their order. Raises TypeError where
    a field has no row, or a row no field."""
    table = tables(file_of(record)).get(key(record), {})
    for name in fields:
        if name not in table:
            raise TypeError(
                f"{key(record)}.{name} has no row: add it to options.json, or declare the option"
                " in its annotation"
            )
    for name in table:
        if name not in fields:
            raise TypeError(f"options.json: {key(record)} has no field {name}, of which it says")
    return {name: _option(f"{key(record)}.{name}", table[name]) for name in fields}


def _option(where: str, row: dict[str, Any]) -> option:
    """One row. where: its place, for an error."""
    if not row.keys() <= COLUMNS:
        raise TypeError(f"options.json: {where} has no column {min(row.keys() - COLUMNS)}")
    try:
        out = {name: _READ[name](cell) if name in _READ else cell for name, cell in row.items()}
    except (AttributeError, KeyError) as error:
        name = getattr(error, "name", None) or error.args[0]
        raise TypeError(f"options.json: {where} refers to no {name}") from None
    return option(**out)


def _text(cell: str) -> str:
    return _NAME.sub(lambda name: _named(name[1]), cell) if "{" in cell else cell


def _bound(cell: Any) -> Any:
    return _named(cell) if isinstance(cell, str) else cell


def _named(name: str) -> Any:
    """A constant that a row refers to. Raises AttributeError."""
    return getattr(verbs if hasattr(verbs, name) else named, name)


def _verbs(text: str) -> frozenset[str]:
    """Verbs of an expression: names of sets and words of verbs, joined by | and -, from the left.
    Raises AttributeError."""
    first, *rest = re.split(r" ([|-]) ", text)
    out = _set(first)
    for sign, word in zip(rest[::2], rest[1::2], strict=True):
        out = out | _set(word) if sign == "|" else out - _set(word)
    return out


def _set(word: str) -> frozenset[str]:
    if word in _VERBS:
        return frozenset({word})
    known: frozenset[str] = getattr(verbs, word)
    return known


# columns whose cells are parsed into values; each of these raises AttributeError for a name
_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("help", "unset", "why_not"), _text),
    **dict.fromkeys(("least", "most", "length"), _bound),
    **dict.fromkeys(("needs", "read", "group"), _named),
    **dict.fromkeys(("verbs", "several"), _verbs),
    **dict.fromkeys(("needs_unit", "strategies"), tuple),
    "aliases": aliases.aliases,
    "free": lambda cell: tuple(cell) if isinstance(cell, list) else cell,
}


def rows(record: type) -> Mapping[str, Row]:
    """The rows of a record of options by name, in the order of its fields. Raises PlanError where
    two of its parts declare one option."""
    kind: Any = record  # mypy takes the classes for unhashable
    return _rows(kind)


@cache
def _rows(record: Any) -> Mapping[str, Row]:
    out: dict[str, Row] = {}
    makers: dict[str, type] = {}
    for part in reversed(record.__mro__):
        verbs = part.VERBS if "VERBS" in part.__dict__ else getattr(record, "VERBS", frozenset())
        for name, (annotation, says) in _declared(part).items():
            kind, default = _without_none(annotation), part.__dict__.get(name, dataclasses.MISSING)
            if name in makers:
                raise plugins.option_twice(out[name].flag, makers[name], part)
            makers[name] = part
            out[name] = Row(
                name=name,
                kind=kind,
                annotation=annotation,
                default=default,
                group=says.group or part.GROUP,
                verbs=says.verbs or verbs,
                says=dataclasses.replace(
                    says,
                    why_not=says.why_not or part.WHY_NOT,
                    example=says.example or ("true" if kind is bool else ""),
                ),
            )
            if default is not dataclasses.MISSING and not _fits(annotation, default):
                raise TypeError(f"{part.__name__}.{name} is {annotation}, not {default!r}")
    return out


def _declared(part: Any) -> dict[str, tuple[Any, option]]:
    """(type, declaration) of each option that a class declares itself."""
    annotations = inspect.get_annotations(part)
    written = any(isinstance(each, str) for each in annotations.values())
    hints = hints_of(part, include_extras=True) if written else annotations
    # fields that are not compared are not options: they record where options come from
    known = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
    fields = {field.name for field in known if field.compare}
    out, plain = {}, []
    for name in annotations:
        annotation: Any = hints[name]
        if get_origin(annotation) is Annotated:
            kind, says, *more = get_args(annotation)
            out[name] = (annotation if more else kind, says)
        elif name in fields:
            plain.append(name)
    if plain:
        out |= {name: (hints[name], says) for name, says in declarations(part, plain).items()}
    return {name: out[name] for name in annotations if name in out}


def _fits(kind: Any, value: object) -> bool:
    """Whether a value has a declared type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(each, value) for each in args)
    if origin is Annotated:
        return _fits(args[0], value)
    return value in args if origin is Literal else isinstance(value, origin or kind)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    left = tuple(member for member in get_args(kind) if member is not NoneType)
    return left[0] if len(left) == 1 else Union[left]  # noqa: UP007


def taken(record: type, verb: str) -> tuple[Row, ...]:
    """The options of a record that a verb takes, or any of its questions."""
    return tuple(
        row
        for row in rows(record).values()
        if any(name == verb or name.startswith(f"{verb} ") for name in row.verbs)
    )
