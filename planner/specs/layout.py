"""How the work is divided: parallel degrees, sharding, schedule, recompute, micro-batch."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from planner.specs.base import Spec
from planner.specs.names import CODES as CODES
from planner.specs.names import KEPT_RESULTS as KEPT_RESULTS
from planner.specs.names import NVME as NVME
from planner.specs.names import NVME_PARAMS as NVME_PARAMS
from planner.specs.names import OFFLOADED_OPTIMIZER as OFFLOADED_OPTIMIZER
from planner.specs.names import OFFLOADED_PARAMS as OFFLOADED_PARAMS
from planner.specs.names import OFFLOADS as OFFLOADS
from planner.specs.names import PLACEMENTS as PLACEMENTS
from planner.specs.names import RECOMPUTE_KINDS as RECOMPUTE_KINDS
from planner.specs.names import RECOMPUTE_MODULES as RECOMPUTE_MODULES
from planner.specs.names import SCHEDULES as SCHEDULES
from planner.specs.names import OffloadName as OffloadName
from planner.specs.names import PlacementName as PlacementName
from planner.specs.names import RecomputeKind as RecomputeKind
from planner.specs.names import ScheduleName as ScheduleName
from planner.specs.names import recompute_in as recompute_in
from planner.specs.names import recompute_name
from planner.specs.names import recompute_parts as recompute_parts
from planner.specs.names import recompute_text as recompute_text

Recompute = Annotated[str, AfterValidator(recompute_name)]
Degree = Field(default=None, ge=1, le=1_000_000)


class LayoutRequest(Spec):
    """Degrees and settings fixed by the user; None is searched. tp * pp * cp * dp = GPUs; ep * etp
    divides tp * dp * cp."""

    tp: int | None = Degree
    pp: int | None = Degree
    vpp: int | None = Degree  # virtual stages per rank
    dp: int | None = Degree
    cp: int | None = Degree
    ep: int | None = Degree
    zero: int | None = Field(default=None, ge=0, le=3)
    shard_group: int | None = Degree  # ranks over which ZeRO shards; the rest replicate
    sequence_parallel: bool | None = None
    recompute: Recompute | None = None
    schedule: ScheduleName | None = None
    micro_batch: int | None = Degree
    offload: OffloadName | None = None
    placement: PlacementName | None = None
    grad_accum: int | None = Degree  # micro-batches of a replica per step
    where: tuple[str, ...] = ()  # conditions, see specs.where
    # share of memory to leave free; None: what a 95 % chance to fit needs
    headroom: float | None = Field(default=None, ge=0, le=0.9)
    search_offload: bool = False  # try everything the stack can offload, where offload is not given
    # layers that do not divide by pp * vpp: yes, no, or (None) only where they must
    uneven_stages: bool | None = None
    # what every chunk holds, see specs.pipeline_layout; None: as the stack deals layers out
    pipeline_layout: str | None = None
    acting: tuple[str, ...] = ()  # requested options: layouts in which they do nothing
    # are not an answer (formulas.rules)


class Layout(Spec):
    """A complete layout: one row of the table that formulas work on."""

    tp: int = Field(ge=1)
    pp: int = Field(ge=1)
    vpp: int = Field(ge=1)
    dp: int = Field(ge=1)
    cp: int = Field(ge=1)
    ep: int = Field(ge=1)
    zero: int = Field(ge=0, le=3)
    shard_group: int = Field(ge=1)
    sequence_parallel: bool
    recompute: Recompute
    schedule: ScheduleName
    micro_batch: int = Field(ge=1)
    offload: OffloadName = "none"
    placement: PlacementName = "tp-cp-dp-pp"

    @model_validator(mode="after")
    def _divides(self) -> Self:
        """That experts fit on tp * dp * cp ranks is a rule of the search, which knows how many
        ranks split each expert."""
        if (self.dp * self.cp) % self.shard_group:
            raise ValueError(
                f"shard_group {self.shard_group} must divide dp * cp = {self.dp * self.cp}"
            )
        return self
