"""Counts of a traced model as polynomials of samples per micro-batch and tokens per sequence.

Written as text in model files: `2048*b*s + 8*b*s^2 - 1/2*b`, `b` the samples of a micro-batch on a
rank, `s` the tokens of a sequence. Coefficients are whole numbers or fractions: exact.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from planner.ledger import Array

_SYMBOLS = ("b", "s")
_MOST_POWER = 4
_MOST_TERMS = 12
_MOST_DIGITS = 24
_MOST_CHARACTERS = 600
_TERM = re.compile(
    rf"([+-]?)\s*(?:(\d{{1,{_MOST_DIGITS}}})(?:/(\d{{1,{_MOST_DIGITS}}}))?\s*\*?\s*)?"
    rf"((?:[bs](?:\^\d)?)(?:\s*\*\s*[bs](?:\^\d)?)*)?\s*"
)


@dataclass(frozen=True)
class Polynomial:
    """Terms: (power of b, power of s, coefficient), highest powers first."""

    terms: tuple[tuple[int, int, Fraction], ...]

    @classmethod
    def of(cls, coefficients: Mapping[tuple[int, int], Fraction]) -> Polynomial:
        """A polynomial from coefficients by (power of b, power of s)."""
        ordered = sorted(coefficients.items(), reverse=True)
        return cls(tuple((*powers, value) for powers, value in ordered if value))

    def at(self, samples: Array, tokens: Array, ranks: Array = 1.0) -> Array:
        """Value for `samples` per micro-batch of `tokens` each. ranks: of context parallelism, who
        share what grows with tokens, one side of tokens by tokens; each has all else."""
        value = 0.0 * samples * tokens * ranks
        for power_b, power_s, coefficient in self.terms:
            term = float(coefficient) / (ranks if power_s else 1.0) + 0.0 * value
            for factor, power in ((samples, power_b), (tokens, power_s)):
                for _ in range(power):
                    term = term * factor
            value = value + term
        return value

    @property
    def power(self) -> int:
        """The highest power of tokens."""
        return max((power_s for _, power_s, _ in self.terms), default=0)

    def is_per_token(self) -> bool:
        """Whether it is one per token: b*s."""
        return self.terms == ((1, 1, Fraction(1)),)

    def __bool__(self) -> bool:
        """Whether it is more than 0."""
        return bool(self.terms)

    def __str__(self) -> str:
        """As `parse` reads it."""
        out = ""
        for i, (power_b, power_s, value) in enumerate(self.terms):
            powers = zip(_SYMBOLS, (power_b, power_s), strict=True)
            names = [x if n == 1 else f"{x}^{n}" for x, n in powers if n]
            size = abs(value)
            factors = [str(size)] * (size != 1 or not names) + names
            sign = ("-" if value < 0 else "") if i == 0 else (" - " if value < 0 else " + ")
            out += sign + "*".join(factors)
        return out or "0"


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Polynomial:
    """A polynomial from its text. Raises ValueError for another text."""
    wrong = f"{text[:80]!r} must be a polynomial of b and s such as 4096*b*s + 8*b*s^2"
    at, coefficients = 0, dict[tuple[int, int], Fraction]()
    text = text.strip()
    if not text or len(text) > _MOST_CHARACTERS:
        raise ValueError(wrong)
    while at < len(text):
        term = _TERM.match(text, at)
        if term is None or not (term[2] or term[4]) or (at and not term[1]):
            raise ValueError(wrong)
        if term[3] and not int(term[3]):
            raise ValueError(wrong)
        value = Fraction(int(term[2] or 1), int(term[3] or 1)) * (-1 if term[1] == "-" else 1)
        powers = dict.fromkeys(_SYMBOLS, 0)
        for symbol, power in re.findall(r"([bs])(?:\^(\d))?", term[4] or ""):
            powers[symbol] += int(power or 1)
        key = powers["b"], powers["s"]
        if max(key) > _MOST_POWER or key in coefficients:
            raise ValueError(wrong)
        coefficients[key] = value
        at = term.end()
    if len(coefficients) > _MOST_TERMS:
        raise ValueError(wrong)
    return Polynomial.of(coefficients)


NONE = Polynomial(())
PER_TOKEN = Polynomial(((1, 1, Fraction(1)),))
ONCE = Polynomial(((0, 0, Fraction(1)),))


class _Text:
    """Annotation of a polynomial that is written as text, or as a whole number."""

    def read(self, given: Any) -> Polynomial:
        if isinstance(given, Polynomial):
            return given
        if isinstance(given, bool) or not isinstance(given, str | int):
            raise ValueError("must be a polynomial of b and s, as text")
        return parse(str(given))

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "description": "polynomial of b (samples) and s (tokens)"}


Count = Annotated[Polynomial, _Text()]
