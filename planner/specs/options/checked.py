"""Values of options checked against their rows: types, bounds, words. pydantic is loaded on use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from types import NoneType
from typing import Any, Literal, NotRequired, TypeVar, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from planner.specs.base import PlanError, sentence
from planner.specs.options import foreign, numbers, words
from planner.specs.options.row import Row
from planner.specs.options.table import rows

R = TypeVar("R")


def read(record: type[R], given: Mapping[str, Any]) -> R:
    """A record of options from names and values, None where one is not given. Raises PlanError
    naming the option."""
    table = rows(record)
    values = {name: value for name, value in given.items() if value is not None}
    for name, value in values.items():
        if name not in table:
            raise unknown(name, value, table)
    for name, row in table.items():
        if row.is_needed and name not in values:
            seen = row.says.catalogue
            where = f"; `dpplan list {seen}` shows the catalogue" if seen else f": {row.says.help}"
            raise PlanError(row.flag, None, f"is needed{where}")
    return record(**values)


def unknown(name: str, value: object, table: Iterable[str]) -> PlanError:
    """The error of an option that none of these is, with near matches."""
    other = foreign.answer(name)
    near = words.near(name, [option.replace("_", "-") for option in table], 3).strip()
    hint = f"it {other}" if other else near or "`dpplan schema` lists them"
    return PlanError(name, value, f"is not an option; {hint}")


def checked(record: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values in one spelling. Raises PlanError naming the option."""
    table = rows(record)
    values = {name: _text(table[name], value) for name, value in given.items()}
    if not all(_is_plain(table[name].annotation, value) for name, value in values.items()):
        try:
            values = adapter_of(record).validate_python(values)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            row = table[str(first["loc"][0])]
            raise PlanError(row.flag, first["input"], sentence(first["msg"])) from None
    for name, value in values.items():
        _bounded(table[name], value)
    return values


def _is_plain(annotation: Any, value: Any) -> bool:
    """Whether a value already has the annotated type, so that pydantic would return it unchanged.
    Saves building pydantic's validator of all options, which the first validation triggers."""
    kinds = get_args(annotation)
    kinds = kinds if NoneType in kinds else (annotation,)
    for kind in kinds:
        if type(value) is kind and kind in _PLAIN and (kind is not float or math.isfinite(value)):
            return True
        if type(value) is str and get_origin(kind) is Literal and value in get_args(kind):
            return True
    return False


_PLAIN = (str, int, float, bool)


def _bounded(row: Row, value: Any) -> None:
    """Numbers within the bounds of their rows. Raises PlanError naming the option."""
    try:
        if row.kind in (int, float):
            numbers.within(row, value)
        elif row.is_number:
            numbers.amount(row, value)
    except ValueError as error:
        raise PlanError(row.flag, value, str(error)) from None


def from_text(row: Row, text: str) -> Any:
    """The value that a text spells, of the option's type. Raises ValueError with a sentence."""
    value = words.meaning(row, text) if row.takes_words and row.says.read is None else text
    if row.kind in (int, float) and isinstance(value, str):
        return words.counted(row, value)
    if _is_plain(row.annotation, value) and row.kind is not str:
        return value
    try:
        return _kind_adapter(row.kind).validate_python(value, strict=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise ValueError(sentence(first["msg"])) from None


@cache
def _kind_adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _text(row: Row, value: Any) -> Any:
    """Texts of a sensible length, several as a tuple, each in one spelling; whole numbers as
    such."""
    if row.is_several:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list | tuple) or not all(isinstance(x, str) for x in texts):
            raise PlanError(
                row.flag, value, f"must be a text such as '{row.says.example}', or a list of them"
            )
        if len(texts) > MOST_TEXTS:
            raise PlanError(row.flag, len(texts), f"are more than {MOST_TEXTS}")
        return tuple(_value_of(row, text) for text in texts)
    if row.kind is int and isinstance(value, float) and value.is_integer():
        return int(value)  # JSON has no other 8.0
    if row.kind is str and row.says.unit and type(value) in (int, float):
        value = repr(value)  # a number that lacks its unit
    return _value_of(row, value) if isinstance(value, str) else value


MOST_TEXTS = 100  # values of an option that may be given several times


def _value_of(row: Row, text: str) -> Any:
    if not text:
        raise PlanError(row.flag, text, "must not be empty")
    if len(text) > row.length:
        raise PlanError(row.flag, text, f"is longer than {row.length} characters")
    try:
        if row.takes_words and row.kind is not str:
            return from_text(row, text)
        value = words.meaning(row, text) if row.takes_words else text
        return value if row.says.read is None else row.says.read(value)
    except ValueError as error:
        raise PlanError(row.flag, text, str(error)) from None


def adapter_of(record: type) -> TypeAdapter[dict[str, Any]]:
    """Pydantic's validator of a record's values: a dict of the same names and types."""
    kind: Any = record
    return _adapter(kind)


@cache
def _adapter(record: Any) -> TypeAdapter[dict[str, Any]]:
    fields: dict[str, Any] = {
        name: row.annotation if row.is_needed else NotRequired[row.annotation]
        for name, row in rows(record).items()
    }
    make: Any = TypedDict
    shape = make(record.__name__, fields)
    shape.__pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return TypeAdapter(shape)
