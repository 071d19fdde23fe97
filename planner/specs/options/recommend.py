"""Options of `dpplan recommend` only."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from planner.specs.options.named import OUTPUT
from planner.specs.options.own import Shared
from planner.specs.options.record import Record
from planner.specs.options.row import Group

Question = Literal["cluster", "bandwidth", "batch", "model", "offload"]
Goal = Literal["cheapest", "smallest", "fastest"]
GOALS: tuple[Goal, ...] = get_args(Goal)
# chances of a run within its days and dollars from which words are used: choices; "very likely" is
# the slow end of the 80 % band
VERY_LIKELY, LIKELY, UNLIKELY = 0.9, 0.5, 0.1
_EVERY = frozenset(f"recommend {question}" for question in get_args(Question))


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(Record):
    GROUP: ClassVar = Group("question", "Question")
    VERBS: ClassVar = _EVERY

    question: Question = "cluster"


@dataclass(frozen=True, kw_only=True)
class Limits(Record):
    """Limits of the run; None: no limit."""

    GROUP: ClassVar = Group("limits", "Limits")
    VERBS: ClassVar = frozenset({"recommend cluster"})

    days: float | None = None
    budget: float | None = None
    max_gpus: int | None = None
    power_kw: float | None = None
    sure: bool = False
    goal: Goal = "cheapest"


def least_chance(sure: bool) -> float:
    """The chance from which a run counts as within its limits."""
    return VERY_LIKELY if sure else LIKELY


@dataclass(frozen=True, kw_only=True)
class RecommendOptions(Shared):
    GROUP: ClassVar = OUTPUT
    VERBS: ClassVar = _EVERY

    model_out: str | None = None
    examples: int | None = None
