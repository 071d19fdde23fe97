"""Base of all specs: frozen, strict, unknown keys rejected; numbers carry their source."""

import math
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from planner.error import PlanError as PlanError
from planner.ledger import Kind, Sourced
from planner.units import UnitError, in_unit, parse


def sentence(message: str) -> str:
    """An error of pydantic as the rest of a sentence that names field and value."""
    return message.removeprefix("Value error, ").replace("Input should be", "must be")


class Spec(BaseModel):
    """Base of all specs."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        defer_build=True,
        protected_namespaces=(),
    )

    @classmethod
    def stated_keys(cls) -> Iterable[str]:
        """Keys that it is read from."""
        return cls.model_fields


# TOML and JSON give lists; a frozen spec keeps tuples
Names = Annotated[tuple[str, ...], Field(strict=False)]

_KINDS = ("measured", "vendor", "assumed")


# (least beside 0, most) of a number of each unit: choices, some thousand times beyond what exists,
# so that a slip of a unit is named where it stands and no answer overflows
_RANGES = {
    "B": (1.0, 1e18),
    "B/s": (1.0, 1e18),
    "FLOP/s": (1e6, 1e21),
    "s": (1e-18, 1e7),
    "W": (1e-3, 1e7),
    "USD/h": (1e-4 / 3600, 1e4 / 3600),
    "token": (1.0, 1e12),
    "1": (1e-15, 1e12),
}
# nothing at all: a fit of what is not there ends below what any number may be
NOTHING = min(least for least, _ in _RANGES.values())


class Quantity:
    """Annotation of a number with a unit: `Annotated[Sourced, Quantity("B/s")]`.

    Accepts "2039 GB/s", a bare number in base units, or a table {value, source, date, kind}. A
    number given without a table counts as assumed, with its file as the only source. Negative and
    non-finite numbers are refused, and those beyond what a number of the unit can be; 0 is one
    unless it is `exclusive`.
    """

    def __init__(self, unit: str, *, exclusive: bool = True, maximum: float = math.inf) -> None:
        self.unit, self.exclusive = unit, exclusive
        self.least, most = _RANGES[unit]
        self.maximum = min(maximum, most)

    def read(self, given: Any) -> Sourced:
        if isinstance(given, Sourced):
            return given
        kind: Kind = "assumed"
        source, date, value = "given without a source", "", given
        if isinstance(given, dict):
            unknown = set(given) - {"value", "source", "date", "kind"}
            if unknown:
                raise ValueError(
                    f"unknown key {sorted(unknown)[0]!r}; a number takes value, source, date and"
                    " kind"
                )
            if "value" not in given:
                raise ValueError("a table for a number needs the key 'value'")
            value = given["value"]
            kind, source, date = (
                given.get("kind", "assumed"),
                given.get("source", ""),
                str(given.get("date", "")),
            )
            if kind not in _KINDS:
                raise ValueError(f"kind is {kind!r}; it must be one of {', '.join(_KINDS)}")
            if not isinstance(source, str) or not source:
                raise ValueError("a table for a number needs a 'source'")
        try:
            number = parse(value, self.unit)
        except UnitError as error:
            raise ValueError(str(error)) from None
        if not self.least <= number <= self.maximum and (self.exclusive or number != 0):
            low, high = (f"{in_unit(x, self.unit):g}" for x in (self.least, self.maximum))
            bound = "more than 0, from" if self.exclusive else "0, or from"
            raise ValueError(
                f"{value!r} is out of range: {self.unit} must be {bound} {low} to at most {high}"
            )
        return Sourced(number, self.unit, kind, source, date)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read, serialization=core_schema.plain_serializer_function_ser_schema(float)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        low, high = (in_unit(x, self.unit) for x in (self.least, self.maximum))
        return {
            "type": "number",
            "description": f"in {self.unit}",
            "minimum": low if self.exclusive else 0,
            "maximum": high,
        }


Fraction = Annotated[Sourced, Quantity("1", exclusive=False)]
Bytes = Annotated[Sourced, Quantity("B")]
BytesPerSecond = Annotated[Sourced, Quantity("B/s")]
FlopPerSecond = Annotated[Sourced, Quantity("FLOP/s")]
Seconds = Annotated[Sourced, Quantity("s", exclusive=False)]
Watts = Annotated[Sourced, Quantity("W")]
Number = Annotated[Sourced, Quantity("1", exclusive=False)]
