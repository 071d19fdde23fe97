"""Constraints on layouts as a user writes them: "tp <= 8", "zero in 1,3", "cp = 1 or zero = 3"."""

from __future__ import annotations

import difflib
import math
import re

from planner.specs.base import Spec
from planner.specs.layout import CODES, recompute_parts
from planner.specs.names import RECOMPUTE_KINDS, is_recompute
from planner.units import UnitError, parse

NUMBERS = ("tp", "pp", "vpp", "dp", "cp", "ep", "zero", "shard_group", "micro_batch", "grad_accum")
# found by the estimate, not columns of a layout: compared with a share such as 5%
SHARES = ("headroom",)
WORDS: dict[str, tuple[str, ...]] = {**CODES, "sequence_parallel": ("no", "yes")}
_SAME = {"==": "=", "in": "="}  # other spellings; several values mean any of them
_TRUTHS = {"true": "yes", "on": "yes", "1": "yes", "false": "no", "off": "no", "0": "no"}
_MOST = 10**9  # more than any layout has of anything
_OR = re.compile(r"(?<=\S)\s++or\s++")
_TEXT = re.compile(r"([A-Za-z_-]++)\s*+(<=|>=|!=|==|=|<|>|in\s)(.*)", re.DOTALL)


class Constraint(Spec):
    """One condition; with several values it holds where it holds for any of them, `!=` where it
    holds for all."""

    name: str
    operator: str
    numbers: tuple[float, ...] = ()
    words: tuple[str, ...] = ()
    or_else: Constraint | None = None  # another one that suffices

    @property
    def parts(self) -> tuple[Constraint, ...]:
        """Itself and what suffices in its place."""
        return (self, *(self.or_else.parts if self.or_else else ()))

    @property
    def text(self) -> str:
        """The condition in one spelling."""
        return " or ".join(part._text for part in self.parts)

    @property
    def _text(self) -> str:
        if self.name in SHARES:
            return f"{self.name} {self.operator} {100 * self.numbers[0]:g}%"
        values = self.words or tuple(f"{value:g}" for value in self.numbers)
        return f"{self.name} {self.operator} {','.join(values)}"


def constraint(text: str) -> Constraint:
    """Read one condition. Raises ValueError with a sentence that lists what can be written."""
    parts = [_constraint(part) for part in _OR.split(text)]
    if parts[1:] and any(term.name in SHARES for term in parts):
        raise ValueError(f"{' and '.join(SHARES)} is a condition by itself, without `or`")
    out = None
    for term in reversed(parts):
        out = term.model_copy(update={"or_else": out})
    assert out is not None
    return out


def terms(text: str) -> tuple[str, str, str] | None:
    """(name, operator, value) of one condition; None where it is not written as one."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        return None
    operator = match[2].strip()
    return match[1].replace("-", "_").lower(), _SAME.get(operator, operator), match[3].strip()


def _constraint(text: str) -> Constraint:
    parts = terms(text)
    known = (*NUMBERS, *WORDS, *SHARES)
    names = ", ".join(known)
    if parts is None:
        raise ValueError(
            "must read NAME OPERATOR VALUE, such as 'tp <= 8' or 'recompute = none'; names are"
            f" {names}"
        )
    name, operator, value = parts
    if name not in known:
        near = difflib.get_close_matches(name, known, 2, 0.5)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise ValueError(f"{name} is not a layout option; {hint}there are {names}")
    if name in SHARES:
        return _share(name, operator, value)
    values = [each.strip().lower() for each in value.split(",")]
    if len(values) > 1 and operator not in ("=", "!="):
        raise ValueError(f"{operator} takes one value, = and != take several")
    return _numbers(name, operator, values) if name in NUMBERS else _words(name, operator, values)


def _numbers(name: str, operator: str, values: list[str]) -> Constraint:
    """A condition on whole numbers."""
    try:
        numbers = [int(value) for value in values]
    except ValueError:
        raise ValueError(
            f"{name} is compared with whole numbers, such as '{name} {operator} 8'"
        ) from None
    if max(map(abs, numbers)) > _MOST:
        raise ValueError(f"{name} is compared with numbers up to {_MOST:,}")
    return Constraint(name=name, operator=operator, numbers=tuple(map(float, numbers)))


def _words(name: str, operator: str, values: list[str]) -> Constraint:
    """A condition on words."""
    if operator not in ("=", "!="):
        raise ValueError(
            f"{name} is a word: compare it with = or !=, such as '{name} = {WORDS[name][0]}'"
        )
    if name == "sequence_parallel":
        values = [_TRUTHS.get(value, value) for value in values]
    for value in values:
        if value not in WORDS[name] and not (name == "recompute" and is_recompute(value)):
            raise ValueError(f"{name} is one of {', '.join(WORDS[name])}, not {value or 'nothing'}")
    return Constraint(name=name, operator=operator, words=tuple(values))


def _share(name: str, operator: str, text: str) -> Constraint:
    """A condition on a share."""
    if operator in ("=", "!="):
        raise ValueError(f"{name} is compared with <, <=, > or >=, such as '{name} > 5%'")
    try:
        value = parse(text, "1")
    except UnitError:
        value = math.nan
    if not abs(value) < 1:
        raise ValueError(f"{name} is compared with a share, such as '{name} {operator} 5%'")
    return Constraint(name=name, operator=operator, numbers=(value,))


def codes(term: Constraint) -> list[tuple[int, int | None]]:
    """(code of the word, size of a block or group or None for any) of every word of a
    constraint."""
    if term.name != "recompute":
        return [(WORDS[term.name].index(word), None) for word in term.words]
    parts = [(recompute_parts(word), word not in RECOMPUTE_KINDS) for word in term.words]
    return [(kind, size if exact else None) for (kind, size), exact in parts]
