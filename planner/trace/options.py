"""Options of `dpplan trace`."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from planner.specs.options.named import OUTPUT
from planner.specs.options.record import Record


@dataclass(frozen=True, kw_only=True)
class TraceOptions(Record):
    GROUP: ClassVar = OUTPUT

    target: str | None = None
    out: str | None = None
    name: str | None = None
    length: int | None = None
    sample: Literal["image", "pair", "clip", "sample"] | None = None
    autocast: bool = False
    trust_remote_code: bool = False
