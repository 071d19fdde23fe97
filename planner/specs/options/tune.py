"""Options of `dpplan tune` only."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.options.own import Shared
from planner.specs.options.row import Group

ANY = "any"
RANK = 16  # of adapters: a choice, as most recipes have it
FEW_CARDS = 4  # up to this many, each is shown where nothing fits, with its contexts and batches


@dataclass(frozen=True, kw_only=True)
class TuneOptions(Shared):
    GROUP: ClassVar = Group("tuning", "Fine-tuning")

    method: str = ANY
    rank: int = RANK
    examples: int = 10_000
    epochs: float = 1.0
    length_max: int | None = None
    largest: bool = False
    csv: str | None = None
