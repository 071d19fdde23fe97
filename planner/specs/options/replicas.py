"""Options: how replicas are kept in step."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.options.layout import LayoutOptions
from planner.specs.options.record import Record
from planner.specs.options.verbs import SEARCHES


@dataclass(frozen=True, kw_only=True)
class ReplicaOptions(Record):
    """Communication between replicas."""

    GROUP: ClassVar = LayoutOptions.GROUP
    VERBS: ClassVar = SEARCHES
    WHY_NOT: ClassVar = "is set by each strategy, which is only data-parallel"

    dp_overlap: str | None = None
    dp_bucket: float | str | None = None
