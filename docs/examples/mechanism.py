"""Lookahead: every K steps slow weights move towards the fast ones, which go on from there."""

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

_FP32_BYTES = 4.0
_MOVED_BYTES = 4 * _FP32_BYTES  # slow and fast weights are read, and written


@dataclass(frozen=True, kw_only=True)
class LookaheadOptions(Record):
    GROUP: ClassVar = TrainingOptions.GROUP
    VERBS: ClassVar = REQUESTS

    lookahead: Annotated[
        int | None,
        option(
            "Steps between two updates of the slow weights of Lookahead",
            label="Lookahead",
            least=1,
            most=1000,
            example="5",
            unset="none",
            form="folded",
        ),
    ] = None


@dataclass(frozen=True)
class Lookahead(Mechanism):
    """every: steps between two updates of the slow weights."""

    every: int

    NAME = "lookahead"
    OFF = "there are no slow weights"
    SOURCE = "Zhang et al. 2019 (arXiv 1907.08610), algorithm 1"
    OPTIONS = LookaheadOptions
    NEEDS = (Needed("lookahead", "slow weights", lambda stack: stack.family == "fsdp"),)
    MEMORY: ClassVar = {"slow_weights": "slow weights of Lookahead in fp32"}
    LASTING = ("slow_weights",)
    STEP: ClassVar = {
        "lookahead": ("memory bandwidth", "update of the slow weights; only with `--lookahead`")
    }

    @classmethod
    def of(cls, options: LookaheadOptions) -> Lookahead | None:
        return None if options.lookahead is None else cls(options.lookahead)

    def memory(self, stage: Stage) -> Bytes:
        return Bytes({"slow_weights": _FP32_BYTES * stage.owned})

    def after_update(self, step: Step) -> Ledger:
        moved = _MOVED_BYTES * step.owned / self.every
        m = step.machine
        return {"lookahead": moved / (m.memory_bandwidth * m.stream_frac)}


MECHANISM = Lookahead
