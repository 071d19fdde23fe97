"""Mechanisms, and their options as one record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner import plugins
from planner.specs.mechanism import Mechanism
from planner.specs.options.record import Record
from planner.specs.options.table import rows

MECHANISMS: tuple[type[Mechanism], ...] = tuple(
    module.MECHANISM for module in plugins.loaded("mechanisms").values()
)

if TYPE_CHECKING:  # only a mechanism reads its options

    @dataclass(frozen=True, kw_only=True)
    class MechanismOptions(Record): ...

else:
    MechanismOptions = type(
        "MechanismOptions", tuple(each.OPTIONS for each in MECHANISMS if each.OPTIONS), {}
    )


def gpus_beside(options: MechanismOptions) -> int:
    """GPUs of a request beside the GPUs of the step."""
    return sum(getattr(options, name) or 0 for each in MECHANISMS for name in each.GPUS)


def mechanism_of(option: str) -> type[Mechanism] | None:
    """The mechanism that an option of a request belongs to."""
    return next((m for m in MECHANISMS if m.OPTIONS and option in rows(m.OPTIONS)), None)
