"""Options of `dpplan recommend` alone."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from planner.specs.options.own import OUTPUT, Shared
from planner.specs.options.record import Record
from planner.specs.options.row import Group, option

Question = Literal["cluster", "bandwidth", "batch", "model", "offload"]
Goal = Literal["cheapest", "smallest", "fastest"]
GOALS: tuple[Goal, ...] = get_args(Goal)
_EVERY = frozenset(f"recommend {question}" for question in get_args(Question))
_CLUSTER, _MODEL = frozenset({"recommend cluster"}), frozenset({"recommend model"})


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(Record):
    GROUP: ClassVar = Group("question", "Question")
    VERBS: ClassVar = _EVERY

    question: Annotated[
        Question,
        option(
            "cluster: smallest, cheapest, fastest that trains the model within the limits;"
            " bandwidth: per GPU that makes communication free; batch: that saturates this"
            " cluster; model: the largest that fits it; offload: recompute a layer's activations"
            " or swap them, over which link",
            argument="[cluster|bandwidth|batch|model|offload]",
            example="bandwidth",
            label="Question",
        ),
    ] = "cluster"


@dataclass(frozen=True, kw_only=True)
class Limits(Record):
    """What the run may take; None: no limit."""

    GROUP: ClassVar = Group("limits", "Limits")
    VERBS: ClassVar = _CLUSTER

    days: Annotated[
        float | None,
        option(
            "The run takes at most this many days, or '6 weeks', '3 months'",
            reads="days",
            least=0.001,
            most=36_525,
            example="30",
            verbs=_CLUSTER | _MODEL,
            label="Within days",
        ),
    ] = None
    budget: Annotated[
        float | None,
        option(
            "The run costs at most this many US dollars, e.g. $2M",
            reads="USD",
            least=0.01,
            most=1e15,
            example="1000",
            verbs=_CLUSTER | _MODEL,
            label="Budget (USD)",
        ),
    ] = None
    max_gpus: Annotated[
        int | None,
        option(
            "The cluster has at most this many GPUs",
            least=1,
            most=1_000_000,
            example="8",
            unset="16384",
            label="GPUs at most",
        ),
    ] = None
    power_kw: Annotated[
        float | None,
        option(
            "The cluster draws at most this many kW at the plug, cooling included",
            reads="kW",
            least=0.01,
            most=1e7,
            example="2",
            label="Power at most (kW)",
        ),
    ] = None
    sure: Annotated[
        bool,
        option(
            "Days and dollars hold at the slow end of the 80 % band",
            verbs=_CLUSTER | _MODEL,
            label="Limits hold at the slow end",
        ),
    ] = False
    goal: Annotated[
        Goal,
        option(
            "Of each kind of GPU, which cluster is listed",
            example="fastest",
            label="Listed of each kind",
        ),
    ] = "cheapest"


@dataclass(frozen=True, kw_only=True)
class RecommendOptions(Shared):
    GROUP: ClassVar = OUTPUT
    VERBS: ClassVar = _EVERY

    model_out: Annotated[
        str | None,
        option(
            "Write the scaled model to this TOML file",
            file="written",
            verbs=_MODEL,
            example="model.toml",
        ),
    ] = None
