"""Options of `dpplan learn`."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.options.named import OUTPUT
from planner.specs.options.record import Record


@dataclass(frozen=True, kw_only=True)
class LearnOptions(Record):
    GROUP: ClassVar = OUTPUT

    lesson: str | None = None
    set: tuple[str, ...] = ()
