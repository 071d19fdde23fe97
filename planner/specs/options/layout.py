"""Options: parallel layout; options left out are searched."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.names import ContextWay, OffloadName, PlacementName, ScheduleName, Selective
from planner.specs.options.record import Record
from planner.specs.options.row import Group
from planner.specs.options.table import rows
from planner.specs.options.verbs import SEARCHES

_LAYOUT = Group("layout", "Layout", "Auto is searched; a fixed degree stays fixed.")
_BY_STRATEGY = "is set by each strategy, which is only data-parallel"


@dataclass(frozen=True, kw_only=True)
class LayoutOptions(Record):
    """The columns of a layout."""

    GROUP: ClassVar = _LAYOUT
    VERBS: ClassVar = SEARCHES
    WHY_NOT: ClassVar = _BY_STRATEGY

    tp: int | None = None
    pp: int | None = None
    vpp: int | None = None
    dp: int | None = None
    cp: int | None = None
    ep: int | None = None
    zero: int | None = None
    shard_group: int | None = None
    sequence_parallel: bool | None = None
    schedule: ScheduleName | None = None
    recompute: str | None = None
    micro_batch: int | None = None
    offload: OffloadName | None = None
    placement: PlacementName | None = None


LAYOUT = tuple(rows(LayoutOptions))  # options that are columns of a layout


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Record):
    """Which layouts are searched."""

    GROUP: ClassVar = _LAYOUT
    VERBS: ClassVar = SEARCHES
    WHY_NOT: ClassVar = _BY_STRATEGY

    cp_comm_type: ContextWay | None = None
    selective: Selective | None = None
    grad_accum: int | None = None
    where: tuple[str, ...] = ()
    headroom: float | str | None = None
    search_offload: bool = False
    stack_defaults: bool = False
    uneven_stages: bool | None = None
    pipeline_layout: str | None = None
