"""Options of `dpplan validate` and `dpplan check`."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.options.named import OUTPUT
from planner.specs.options.own import Shared
from planner.specs.options.record import Record
from planner.specs.options.row import Group


@dataclass(frozen=True, kw_only=True)
class ValidateOptions(Shared):
    GROUP: ClassVar = Group("validate", "Validation")

    runs: tuple[str, ...] = ()
    suite: tuple[str, ...] = ()
    calibration: str | None = None
    csv: str | None = None
    plot: str | None = None


@dataclass(frozen=True, kw_only=True)
class CheckOptions(Record):
    GROUP: ClassVar = OUTPUT

    logs: tuple[str, ...] = ()
    save: str | None = None
    append: str | None = None
