"""How the work is divided: parallel degrees, sharding, schedule, recompute, micro-batch."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from planner.specs.base import Spec

RecomputeKind = Literal["none", "selective", "full", "block", "group"]
ScheduleName = Literal[
    "1f1b",
    "gpipe",
    "interleaved",
    "zb-1p",
    "zb-2p",
    "dualpipe",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "dualpipev",
    "breadth-first",
    "sequential",
]
OffloadName = Literal[
    "none",
    "optimizer",
    "params",
    "activations",
    "optimizer-nvme",
    "params-optimizer-nvme",
    "params-nvme",
]
# which ranks are neighbours, innermost first: what comes first stays inside a node or NVLink domain
PlacementName = Literal["tp-cp-dp-pp", "tp-cp-pp-dp"]
RECOMPUTE_KINDS: tuple[RecomputeKind, ...] = get_args(RecomputeKind)
SCHEDULES: tuple[ScheduleName, ...] = get_args(ScheduleName)
OFFLOADS: tuple[OffloadName, ...] = get_args(OffloadName)
PLACEMENTS: tuple[PlacementName, ...] = get_args(PlacementName)
# names of the columns that hold codes, positions in these (specs/columns.py)
CODES: dict[str, tuple[str, ...]] = {
    "recompute": RECOMPUTE_KINDS,
    "schedule": SCHEDULES,
    "offload": OFFLOADS,
    "placement": PLACEMENTS,
}

# what each way of offloading keeps where: "params-optimizer-nvme" has parameters in host memory and
# the optimizer on the drives, "params-nvme" both on the drives; "params" has both in host memory
NVME: tuple[OffloadName, ...] = ("optimizer-nvme", "params-optimizer-nvme", "params-nvme")
AWAY_OPTIMIZER: tuple[OffloadName, ...] = ("optimizer", "params", *NVME)
AWAY_PARAMS: tuple[OffloadName, ...] = ("params", "params-optimizer-nvme", "params-nvme")
NVME_PARAMS: tuple[OffloadName, ...] = ("params-nvme",)

_RECOMPUTE = re.compile(r"^(none|selective|full|(?:block|group):[1-9]\d{0,4})$")


def _recompute(text: str) -> str:
    if not _RECOMPUTE.match(text):
        raise ValueError(
            "must be none, selective, full, block:N (N layers of each stage) or group:K (one input"
            " kept per K layers)"
        )
    return text


Recompute = Annotated[str, AfterValidator(_recompute)]
Degree = Field(default=None, ge=1, le=1_000_000)


def recompute_parts(text: str) -> tuple[int, int]:
    """(index of the kind in RECOMPUTE_KINDS, N or K or 0): "block:20" -> (3, 20)."""
    kind, _, size = text.partition(":")
    return RECOMPUTE_KINDS.index(kind), int(size or 0)


class LayoutRequest(Spec):
    """What the user fixed; None is left to the search. tp * pp * cp * dp = GPUs; ep divides dp *
    cp."""

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
    where: tuple[str, ...] = ()  # conditions, see specs.where
    search_offload: bool = False  # try everything the stack can offload, where offload is not given
    uneven_stages: bool = False  # allow layers that do not divide by pp * vpp


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
        replicas = self.dp * self.cp
        for name in ("shard_group", "ep"):
            if replicas % getattr(self, name):
                raise ValueError(f"{name} {getattr(self, name)} must divide dp * cp = {replicas}")
        return self
