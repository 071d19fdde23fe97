"""Base class of option records, and refusal of options that belong to another verb."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, ClassVar, Self

from planner.error import PlanError
from planner.specs.options.row import Group, why_not
from planner.specs.options.table import rows


class Record:
    """Base of records of options: frozen dataclasses, checked when they are made."""

    GROUP: ClassVar[Group]
    VERBS: ClassVar[frozenset[str]] = frozenset()
    WHY_NOT: ClassVar[str] = ""

    def __post_init__(self) -> None:
        self._check(rows(type(self)))

    def _check(self, names: Iterable[str]) -> None:
        """Checks the values of these options, and puts each in its one spelling."""
        from planner.specs.options.checked import checked

        mine, table = self.__dict__, rows(type(self))
        given = {n: mine[n] for n in names if mine[n] is not table[n].default}
        mine.update(checked(type(self), given))

    def given(self) -> dict[str, Any]:
        """Options that differ from their default, by name."""
        kind: Any = type(self)
        values = ((name, self.__dict__[name], default) for name, default in _usual(kind))
        return {name: v for name, v, usual in values if v is not usual and v != usual}

    def changed(self, **update: Any) -> Self:
        """The record with other values of some options. Only these are checked: the others are."""
        mine = self.__dict__
        if not update.keys() <= mine.keys():
            raise TypeError(f"no fields of {type(self).__name__}: {update.keys() - mine.keys()}")
        kind: Any = type(self)
        out: Self = object.__new__(kind)
        out.__dict__.update(mine, **update)
        out._check(dict.fromkeys([*_needed(kind), *(n for n in update if n in rows(kind))]))
        return out


@cache
def _usual(record: type) -> list[tuple[str, Any]]:
    """Names and defaults of a record's options."""
    return [(name, row.default) for name, row in rows(record).items()]


@cache
def _needed(record: type) -> list[str]:
    """Options without a default, which pydantic wants beside any other."""
    return [name for name, row in rows(record).items() if row.is_needed]


def refuse(record: Record, verb: str, besides: str = "") -> None:
    """Refuse what another verb answers, and what nothing beside it lets act: this one would ignore
    it. besides: one option that the caller filled in."""
    refuse_of_all([record], verb, besides)


def refuse_of_all(records: Sequence[Record], verb: str, besides: str = "") -> None:
    """Refuse options that no request of a comparison uses; one in which the option acts
    suffices."""
    given: dict[str, Any] = {}
    for record in records:
        given |= {
            reading.name: reading.typed for reading in getattr(record, "spelled", ())
        } | record.given()
    table = rows(type(records[0]))
    for name, value in given.items():
        row, needs = table[name], table[name].says.needs
        shown = value[0] if isinstance(value, tuple) else value
        if verb not in row.verbs and name != besides:
            raise PlanError(row.flag, shown, why_not(row, verb))
        if needs and verb in (needs.verbs or row.verbs) and not any(map(needs.holds, records)):
            raise PlanError(row.flag, shown, needs.says)
