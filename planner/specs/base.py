"""What every spec shares: frozen, strict, unknown keys rejected, and numbers that carry their
source."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from planner.ledger import Kind, Sourced
from planner.specs.error import PlanError as PlanError
from planner.units import UnitError, parse


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


# TOML and JSON give lists; a frozen spec keeps tuples
Names = Annotated[tuple[str, ...], Field(strict=False)]

_KINDS = ("measured", "vendor", "assumed")
# in base units, of anything above zero: no machine, file or price is near them, and a product of
# some of them is still a number. A choice
_LEAST, _MOST = 1e-18, 1e24


class Quantity:
    """Annotation of a number with a unit: `Annotated[Sourced, Quantity("B/s")]`.

    Accepts "2039 GB/s", a bare number in base units, or a table {value, source, date, kind}. A
    number given without a table counts as assumed, with its file as the only source. Negative and
    non-finite numbers are refused.
    """

    def __init__(
        self, unit: str, *, minimum: float = 0.0, exclusive: bool = True, maximum: float = _MOST
    ) -> None:
        self.unit, self.minimum, self.exclusive, self.maximum = unit, minimum, exclusive, maximum

    @property
    def _from(self) -> str:
        return "more than" if self.exclusive else "at least"

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
        low = number <= self.minimum if self.exclusive else number < self.minimum
        tiny = 0 < number < _LEAST
        if low or tiny or number > self.maximum:
            least, word = (_LEAST, "at least") if tiny else (self.minimum, self._from)
            raise ValueError(
                f"{value!r} is out of range: {self.unit} must be {word} {least:g} and at most"
                f" {self.maximum:g}"
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
        return {"type": "number", "description": f"in {self.unit}"}


Fraction = Annotated[Sourced, Quantity("1", minimum=0.0, exclusive=False)]
Bytes = Annotated[Sourced, Quantity("B")]
BytesPerSecond = Annotated[Sourced, Quantity("B/s")]
FlopPerSecond = Annotated[Sourced, Quantity("FLOP/s")]
Seconds = Annotated[Sourced, Quantity("s", exclusive=False)]
Watts = Annotated[Sourced, Quantity("W")]
Number = Annotated[Sourced, Quantity("1", exclusive=False)]
