"""Paged stash of Megatron-LM: activations that experts save for backward are paged, sized for a
multiple of a rank's mean load instead of the capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from planner.specs.mechanism import Mechanism
from planner.specs.options.experts import ExpertOptions
from planner.specs.options.named import MOST_TIMES
from planner.specs.options.record import Record
from planner.specs.options.row import beside, option


@dataclass(frozen=True, kw_only=True)
class PagedStashOptions(Record):
    """A dense model is refused for the capacity that it needs."""

    GROUP: ClassVar = ExpertOptions.GROUP
    VERBS: ClassVar = ExpertOptions.VERBS
    WHY_NOT: ClassVar = ExpertOptions.WHY_NOT

    paged_stash: Annotated[
        float | None,
        option(
            "Activations that experts keep for the backward pass are paged: this many times a"
            " rank's mean load, not buffers as large as the capacity (Megatron-LM's paged"
            " stash)",
            label="Paged stash",
            least=1,
            most=MOST_TIMES,
            example="1.1",
            unset="buffers are as large as the capacity",
            needs=beside("keeps less than a capacity has room for", "capacity_factor"),
            form="folded",
        ),
    ] = None


@dataclass(frozen=True)
class PagedStash(Mechanism):
    """load: that pages are there for, in means of a rank."""

    load: float

    NAME = "paged-stash"
    OFF = "what experts keep lies in buffers as large as their capacity"
    SOURCE = "--moe-paged-stash and --moe-paged-stash-buffer-size-factor-cuda of Megatron-LM"
    OPTIONS = PagedStashOptions
    EXAMPLE: ClassVar = {"model": "moonlight-16b-a3b", "capacity_factor": 1.5}

    @classmethod
    def of(cls, options: PagedStashOptions) -> PagedStash | None:
        return None if options.paged_stash is None else cls(options.paged_stash)

    def kept_load(self) -> float:
        return self.load


MECHANISM = PagedStash
