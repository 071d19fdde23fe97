"""Options of `dpplan preflight`."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.options.record import Record
from planner.specs.options.row import Group


@dataclass(frozen=True, kw_only=True)
class PreflightOptions(Record):
    GROUP: ClassVar = Group("node", "This node")

    folder: str = "."
