"""Base of records of options, and the refusal of what another verb answers."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

from planner.specs.error import PlanError
from planner.specs.options.row import Group, rows, why_not


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
        found = ((row, getattr(self, name)) for name, row in rows(type(self)).items())
        return {row.name: value for row, value in found if value != row.default}

    def changed(self, **update: Any) -> Self:
        """The record with other values of some options."""
        return dataclasses.replace(self, **update)  # type: ignore[type-var]


def refuse(record: Record, verb: str, besides: str = "") -> None:
    """Refuse what another verb answers, and this one would ignore; `besides` one option that the
    caller filled in."""
    table = rows(type(record))
    typed = {one.name: one.typed for one in getattr(record, "spelled", ())}
    for name, value in {**typed, **record.given()}.items():
        if verb not in table[name].verbs and name != besides:
            shown = value[0] if isinstance(value, tuple) else value
            raise PlanError(table[name].flag, shown, why_not(table[name], verb))
