"""Options of single verbs, beside the options of a request."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from planner.specs.names import Kind
from planner.specs.options.cluster import ModelOptions
from planner.specs.options.named import OUTPUT, WORK
from planner.specs.options.record import Record
from planner.specs.options.row import Group
from planner.specs.options.verbs import REQUESTS


@dataclass(frozen=True, kw_only=True)
class Shared(Record):
    """Who shares the work."""

    GROUP: ClassVar = WORK

    jobs: int | None = None
    dask: str | None = None


@dataclass(frozen=True, kw_only=True)
class Output(Record):
    """How a command answers."""

    GROUP: ClassVar = OUTPUT

    json: bool = False
    plain: bool = False
    html: str | None = None


@dataclass(frozen=True, kw_only=True)
class ScenarioFile(Record):
    """Source of options that are not on the command line."""

    GROUP: ClassVar = ModelOptions.GROUP
    VERBS: ClassVar = REQUESTS | {"export", "preflight"}  # which take what estimate takes

    scenario: str | None = None

    recipe: tuple[str, ...] = ()


ChartName = Literal["roofline", "crossover"]


@dataclass(frozen=True, kw_only=True)
class EstimateOptions(Record):
    GROUP: ClassVar = OUTPUT

    part: Literal["memory", "time"] | None = None
    explain: bool = False
    trace: str | None = None
    full: bool = False
    inference: bool = False
    chart: ChartName | None = None


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Record):
    GROUP: ClassVar = OUTPUT

    full: bool = False
    csv: str | None = None


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Shared):
    GROUP: ClassVar = Group("comparison", "Comparison")

    files: tuple[str, ...] = ()
    vary: tuple[str, ...] = ()
    sweep: tuple[str, ...] = ()
    at: Literal["count", "cost", "power"] = "count"
    scaling: Literal["strong", "weak"] = "strong"
    stop_below: float = 0.5
    csv: str | None = None


@dataclass(frozen=True, kw_only=True)
class BatchOptions(Shared):
    GROUP: ClassVar = Group("target", "Batch and target")

    sweep: str | None = None
    critical_batch: float | str | None = None
    target_loss: float | None = None
    gradient_norm: tuple[str, ...] = ()
    reference_batch: int | None = None
    learning_rate: float | None = None
    warmup: str | None = None
    stop_below: float = 0.5
    csv: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelTimes(Record):
    """Seconds, bytes and micro-batches of a schedule; taken from a layout where a model is
    given."""

    GROUP: ClassVar = Group("schedule", "Schedule")

    microbatches: int | None = None
    forward_s: str | None = None
    backward_s: str | None = None
    weight_s: str | None = None
    p2p_s: str | None = None
    optimizer_s: str | None = None
    activation_bytes: str | None = None


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions(ModelTimes):
    GROUP: ClassVar = ModelTimes.GROUP

    straggler: str | None = None
    blocking_sends: bool = False
    file: str | None = None
    sends: bool = False
    trace: str | None = None


@dataclass(frozen=True, kw_only=True)
class ListOptions(Record):
    GROUP: ClassVar = OUTPUT

    kind: Kind | None = None
    entry: str | None = None
