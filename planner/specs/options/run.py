"""Options: the whole run. What it costs, what fails, where checkpoints go, what must hold."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.names import CheckpointWriter, FailureUnit, Objective, RunKind
from planner.specs.options.named import RUN
from planner.specs.options.record import Record
from planner.specs.options.row import Group
from planner.specs.options.verbs import NOT_OF_RUNS, RUNS


@dataclass(frozen=True, kw_only=True)
class RunOptions(Record):
    GROUP: ClassVar = RUN
    VERBS: ClassVar = RUNS
    WHY_NOT: ClassVar = NOT_OF_RUNS

    market: str | None = None
    price_day: str | None = None
    capex: float | str | None = None
    lifetime: float | str | None = None
    use: float | str | None = None
    electricity: float | str | None = None
    pue: float | None = None
    grid: float | str | None = None
    mtbf: str | None = None
    checkpoint: CheckpointWriter | None = None
    checkpoint_interval: str | None = None
    storage: str | None = None
    restart: str | None = None
    spare_nodes: int | None = None
    failure_stops: FailureUnit | None = None
    run_as: RunKind | None = None


@dataclass(frozen=True, kw_only=True)
class ObjectiveOptions(Record):
    GROUP: ClassVar = Group("answer", "Answer")
    VERBS: ClassVar = frozenset({"search"})

    objective: Objective = "time"


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(Record):
    GROUP: ClassVar = ObjectiveOptions.GROUP
    VERBS: ClassVar = frozenset({"estimate"})

    top: int = 5
    allow_idle: bool = False
    advice: int | None = None
    require: tuple[str, ...] = ()
