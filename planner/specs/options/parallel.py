"""Options of the verbs about data parallelism: strategies, allreduce, batchnorm, input."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.options.record import Record
from planner.specs.options.row import Group

_STRATEGIES = Group("strategies", "Strategies")


@dataclass(frozen=True, kw_only=True)
class StrategyName(Record):
    """Which strategy is looked at."""

    GROUP: ClassVar = _STRATEGIES

    strategy: str | None = None
    explain: bool = False


@dataclass(frozen=True, kw_only=True)
class StrategySettings(Record):
    """Settings of strategies that a user may change; None: the value of the strategy's source."""

    GROUP: ClassVar = _STRATEGIES

    local_steps: int | None = None
    rank: int = 4
    density: float = 0.001
    servers: int | None = None
    server_copies: int = 0
    slack: int = 3
    backups: int = 1
    bucket: str | None = None
    steps_factor: float | None = None


@dataclass(frozen=True, kw_only=True)
class AllReduceOptions(Record):
    GROUP: ClassVar = Group("allreduce", "All-reduce")

    bytes: str | None = None
    servers: int | None = None


@dataclass(frozen=True, kw_only=True)
class BatchNormOptions(Record):
    GROUP: ClassVar = Group("batchnorm", "Batch norm")

    channels: str | None = None


@dataclass(frozen=True, kw_only=True)
class InputOptions(Record):
    """How fast samples are consumed, and by what."""

    GROUP: ClassVar = Group("input", "Consumption")

    samples_per_s: float
    batch: int = 1
    gpus: int = 1
    gpus_per_node: int = 8
