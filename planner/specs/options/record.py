"""Base class of option records, and refusal of options that belong to another verb."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
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
        from planner.specs.options.checked import checked

        mine = self.__dict__
        table = rows(type(self)).items()
        given = {n: mine[n] for n, row in table if mine[n] is not row.default}
        for name, value in checked(type(self), given).items():
            object.__setattr__(self, name, value)

    def given(self) -> dict[str, Any]:
        """Options that differ from their default, by name."""
        values = ((row, getattr(self, name)) for name, row in rows(type(self)).items())
        return {row.name: value for row, value in values if value != row.default}

    def changed(self, **update: Any) -> Self:
        """The record with other values of some options."""
        return dataclasses.replace(self, **update)  # type: ignore[type-var]


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
