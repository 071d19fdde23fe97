"""Options: the objective of a fine-tuning."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.names import BaseName, DivergenceName, ReferenceName, TaskName
from planner.specs.options.record import Record
from planner.specs.options.row import Group
from planner.specs.options.verbs import PARTS, REQUESTS


@dataclass(frozen=True, kw_only=True)
class TaskOptions(Record):
    GROUP: ClassVar = Group("task", "Objective of fine-tuning")
    VERBS: ClassVar = REQUESTS - PARTS - {"strategies"}
    WHY_NOT: ClassVar = "changes only whole training steps"

    task: TaskName | None = None
    reference: ReferenceName | None = None
    teacher: str | None = None
    teacher_precision: BaseName | None = None
    teacher_gpus: int | None = None
    teacher_top_k: int | None = None
    divergence: DivergenceName | None = None
