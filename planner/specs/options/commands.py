"""Options of the commands that plan nothing: serve, schema."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.options.record import Record
from planner.specs.options.row import Group


@dataclass(frozen=True, kw_only=True)
class ServeOptions(Record):
    GROUP: ClassVar = Group("serve", "Server")

    host: str = "127.0.0.1"
    port: int = 8321
    allow_host: tuple[str, ...] = ()
    token_file: str | None = None
