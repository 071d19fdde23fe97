"""Options of `dpplan prices`."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.options.named import OUTPUT
from planner.specs.options.record import Record


@dataclass(frozen=True, kw_only=True)
class PricesOptions(Record):
    GROUP: ClassVar = OUTPUT

    gpu: str | None = None
    update: bool = False
    feed: str | None = None
