"""Options of `dpplan export`."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.names import TargetName
from planner.specs.options.named import OUTPUT
from planner.specs.options.record import Record
from planner.specs.options.row import Group

_EXPORT = Group("export", "Export")


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Record):
    GROUP: ClassVar = _EXPORT

    answer: str | None = None
    to: TargetName
    rank: int | None = None
    out: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReadOptions(Record):
    GROUP: ClassVar = OUTPUT

    files: tuple[str, ...]
    full: bool = False
    append: str | None = None
