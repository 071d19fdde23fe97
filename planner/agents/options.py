"""Options of `dpplan mcp`."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.options.record import Record
from planner.specs.options.row import Group


@dataclass(frozen=True, kw_only=True)
class McpOptions(Record):
    GROUP: ClassVar = Group("agents", "Coding agents")

    port: int | None = None
