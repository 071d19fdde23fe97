"""Options: the objective of a fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from planner.specs.names import ReferenceName, TaskName
from planner.specs.options.record import Record
from planner.specs.options.row import Group, Needs, option
from planner.specs.options.verbs import PARTS, REQUESTS
from planner.specs.task import TASKS

_OF_REFERENCE = Needs(
    lambda given: TASKS[given.task or "sft"].reference > 0,
    "is of an objective that compares with a reference: give --task dpo or kto, too",
    "--task dpo or kto",
)


@dataclass(frozen=True, kw_only=True)
class TaskOptions(Record):
    GROUP: ClassVar = Group("task", "Objective of fine-tuning")
    VERBS: ClassVar = REQUESTS - PARTS - {"strategies"}
    WHY_NOT: ClassVar = "changes whole steps of training alone"

    task: Annotated[
        TaskName | None,
        option(
            "Objective: sft, dpo, kto, orpo, simpo or reward (a model of rewards, whose head is one"
            " score), with sequences, passes and reference models as TRL has them; dpo, orpo,"
            " simpo and reward have pairs, two sequences of a micro-batch each",
            label="Objective",
            example="dpo",
            unset="a loss over each sequence",
            form="folded",
        ),
    ] = None
    reference: Annotated[
        ReferenceName | None,
        option(
            "Reference of dpo and kto: held (a second model beside the first), shared (the same"
            " base without its adapters) or precomputed (before the run)",
            label="Reference model",
            example="precomputed",
            unset="shared with --lora, else held",
            needs=_OF_REFERENCE,
            form="folded",
        ),
    ] = None
