"""Options: the objective of a fine-tuning."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.names import ReferenceName, TaskName
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
