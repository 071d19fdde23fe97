"""Checkpoints staged in host memory: every K steps weights and states are copied to the host, from
where a thread writes them while training goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from planner.specs.mechanism import Bytes, Mechanism, Needed, Stage, Step
from planner.specs.options.record import Record
from planner.specs.options.row import option
from planner.specs.options.training import TrainingOptions
from planner.specs.options.verbs import REQUESTS

if TYPE_CHECKING:
    from planner.ledger import Ledger

_BYTES = 12.0  # of a parameter in fp32 and of AdamW's two moments


@dataclass(frozen=True, kw_only=True)
class StagedCheckpointOptions(Record):
    GROUP: ClassVar = TrainingOptions.GROUP
    VERBS: ClassVar = REQUESTS

    staged_checkpoint: Annotated[
        int | None,
        option(
            "Steps between two copies of weights and optimizer states in host memory",
            label="Staged checkpoint",
            least=1,
            most=100_000,
            example="100",
            unset="none",
            form="folded",
        ),
    ] = None


@dataclass(frozen=True)
class StagedCheckpoint(Mechanism):
    """every: steps between two copies."""

    every: int

    NAME = "staged-checkpoint"
    OFF = "no checkpoint is staged"
    SOURCE = "async_save of torch/distributed/checkpoint/state_dict_saver.py; own byte count"
    OPTIONS = StagedCheckpointOptions
    NEEDS = (
        Needed("staged_checkpoint", "staged checkpoints", lambda stack: stack.family == "fsdp"),
    )
    STEP: ClassVar = {
        "staged_checkpoint": (
            "host link",
            "copies of weights and states to the host; only with `--staged-checkpoint`",
        )
    }

    @classmethod
    def of(cls, options: StagedCheckpointOptions) -> StagedCheckpoint | None:
        every = options.staged_checkpoint
        return None if every is None else cls(every)

    def memory(self, stage: Stage) -> Bytes:
        return Bytes(host=_BYTES * stage.owned)

    def after_update(self, step: Step) -> Ledger:
        seconds = _BYTES * step.owned / step.machine.host_copy_bandwidth
        return {"staged_checkpoint": seconds / self.every}


MECHANISM = StagedCheckpoint
