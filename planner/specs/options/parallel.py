"""Options of the verbs about data parallelism: strategies, allreduce, batchnorm, input."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from planner.specs.options.record import Record
from planner.specs.options.row import Group, option

_STRATEGIES = Group("strategies", "Strategies")
_LOCAL = ("local-sgd", "diloco")
_SERVERS = ("ps-sync", "ps-backup", "ps-bounded", "ps-async")
_BUCKETS = (
    "ddp",
    "ddp-sync-always",
    "ddp-bucket-view",
    "ddp-static-graph",
    "ddp-fp16-hook",
    "ddp-bf16-hook",
    "ddp-powersgd-hook",
    "int8",
    "1-bit-adam",
    "top-k",
    "diloco",
)


@dataclass(frozen=True, kw_only=True)
class StrategyName(Record):
    """Which strategy is looked at."""

    GROUP: ClassVar = _STRATEGIES

    strategy: Annotated[
        str | None,
        option("This strategy alone, in full", example="ddp", unset="all", label="Strategy"),
    ] = None
    explain: Annotated[
        bool, option("With --strategy: print the formulas with numbers and sources")
    ] = False


@dataclass(frozen=True, kw_only=True)
class StrategySettings(Record):
    """Numbers of strategies that a user may change; None: what the strategy's source uses."""

    GROUP: ClassVar = _STRATEGIES

    local_steps: Annotated[
        int | None,
        option(
            "Local steps between synchronizations of local SGD and DiLoCo (H)",
            least=1,
            most=1e6,
            example="16",
            unset="8 for local SGD, 500 for DiLoCo",
            strategies=_LOCAL,
            label="Local steps",
        ),
    ] = None
    rank: Annotated[
        # Vogels et al. 2019 use 1 to 4
        int,
        option(
            "Rank of PowerSGD's low-rank gradients",
            least=1,
            most=1024,
            example="8",
            strategies=("ddp-powersgd-hook",),
            label="Rank of PowerSGD",
        ),
    ] = 4
    density: Annotated[
        # 0.1 %, Lin et al. 2018 (DGC)
        float,
        option(
            "Share of the gradients that top-k sends",
            least=1e-6,
            most=1,
            example="0.01",
            strategies=("top-k",),
            label="Share that top-k sends",
        ),
    ] = 0.001
    servers: Annotated[
        int | None,
        option(
            "Parameter servers",
            least=1,
            most=1e6,
            example="2",
            unset="one per node",
            strategies=_SERVERS,
            label="Parameter servers",
        ),
    ] = None
    slack: Annotated[
        int,
        option(
            "Steps that workers may be apart under bounded staleness",
            least=0,
            most=1e6,
            example="8",
            strategies=("ps-bounded",),
            label="Slack in steps",
        ),
    ] = 3
    backups: Annotated[
        int,
        option(
            "Backup workers, whose gradients a step does not wait for",
            least=0,
            most=1e6,
            example="2",
            strategies=("ps-backup",),
            label="Backup workers",
        ),
    ] = 1
    bucket: Annotated[
        str | None,
        option(
            "Size at which DDP closes a gradient bucket (bucket_cap_mb)",
            unit="B",
            needs_unit=("MiB", "MB"),
            least=1,
            most=1e13,
            example="100 MiB",
            unset="25 MiB, the first one 1 MiB",
            strategies=_BUCKETS,
            label="Gradient bucket",
        ),
    ] = None
    steps_factor: Annotated[
        float | None,
        option(
            "With --strategy: steps to the same loss over those of exact synchronous training",
            least=0.01,
            most=1000,
            example="1.2",
            unset="as published",
            label="Steps over exact training",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class AllReduceOptions(Record):
    GROUP: ClassVar = Group("allreduce", "All-reduce")

    bytes: Annotated[
        str | None,
        option(
            "Message sizes, e.g. 100MB or 1MiB,1GiB",
            length=4096,
            each="B",
            least=1,
            most=1e15,
            example="100MB",
            unset="4 KiB to 8 GiB",
            label="Message sizes",
        ),
    ] = None
    servers: Annotated[
        int | None,
        option(
            "Servers of the parameter server, each with the NICs of a node",
            least=1,
            most=1_000_000,
            example="4",
            unset="one per node",
            label="Parameter servers",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class BatchNormOptions(Record):
    GROUP: ClassVar = Group("batchnorm", "Batch norm")

    channels: Annotated[
        str | None,
        option(
            "Channels of each batch-norm layer, such as 64,256x3",
            length=100_000,
            least=1,
            most=1_000_000,
            example="64,256x3",
            unset="as in ResNet-50",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class InputOptions(Record):
    """How fast samples are consumed, and by what."""

    GROUP: ClassVar = Group("input", "Consumption")

    samples_per_s: Annotated[
        float,
        option(
            "Samples that all GPUs consume per second",
            most=1e12,
            least=1e-6,
            example="1000",
            label="Samples per second",
        ),
    ]
    batch: Annotated[
        int,
        option(
            "Samples per GPU and step",
            least=1,
            most=1_000_000,
            example="8",
            label="Samples per GPU and step",
        ),
    ] = 1
    gpus: Annotated[
        int,
        option(
            "GPUs, one replica of the model each",
            least=1,
            most=1_000_000,
            example="16",
            label="GPUs",
        ),
    ] = 1
    gpus_per_node: Annotated[
        int, option("GPUs per node", least=1, most=1_000_000, example="4", label="GPUs per node")
    ] = 8
