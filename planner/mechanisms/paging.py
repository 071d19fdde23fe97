"""Optimizer states in memory that the driver pages: they stay on the GPU as far as there is room
beside everything else, and the rest lies in host memory until the update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from planner.specs.mechanism import Mechanism, Room, Step

if TYPE_CHECKING:
    from planner.ledger import Array, Ledger
    from planner.specs.plan import Plan


@dataclass(frozen=True)
class Paging(Mechanism):
    """There is nothing to set: it is a word of the optimizer (`formulas.optimizers`)."""

    NAME = "paging"
    OFF = "states stay on the GPU"
    SOURCE = "bitsandbytes, paged optimizers (QLoRA, Dettmers et al. 2023, arXiv 2305.14314)"
    EXAMPLE: ClassVar = {"optimizer": "paged-adam", "model": "llama-2-7b"}
    ADDS = ("optimizer",)

    @classmethod
    def of(cls, options: Any) -> None:
        return None

    @classmethod
    def implied(cls, plan: Plan) -> bool:
        from planner.formulas.optimizers import OPTIMIZERS

        return OPTIMIZERS[plan.training.optimizer].paged

    def evicted(self, room: Room) -> Array:
        import numpy as np

        return np.clip(room.optimizer - room.room, 0.0, room.optimizer)

    def after_update(self, step: Step) -> Ledger:
        from planner.formulas.optimizers import paging_s

        return {"optimizer": paging_s(step.evicted, step.machine.host_copy_bandwidth)}


MECHANISM = Paging
