"""What a user may ask: the same names on the command line, in a scenario file and in a query
string."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from planner.specs.base import PlanError, Spec
from planner.specs.data import Packing
from planner.specs.hardware import Precision
from planner.specs.layout import OffloadName, PlacementName, Recompute, ScheduleName
from planner.specs.ranks import Split
from planner.specs.run import CheckpointWriter
from planner.specs.training import OptimizerName
from planner.specs.where import constraint

Degree = Field(default=None, ge=1, le=1_000_000)
Objective = Literal["time", "memory", "cost", "energy", "tokens-per-dollar"]
_MOST_CONDITIONS = 100


class Options(Spec):
    """One request. None means: searched (layout), typical for the hardware (cluster), or the
    stack's default (training)."""

    model: str = Field(min_length=1, max_length=4096)
    gpu: str | None = Field(default=None, min_length=1, max_length=4096)
    gpus: int = Field(default=1, ge=1, le=1_000_000)
    cluster: str | None = Field(default=None, min_length=1, max_length=4096)
    gpus_per_node: int | None = Field(default=None, ge=1, le=1024)
    intra_node: str | None = None
    inter_node: str | None = None
    nics_per_node: int | None = Field(default=None, ge=1, le=256)
    nic_bandwidth: str | None = None
    price: float | str | None = None
    clock: float | None = Field(default=None, gt=0, le=1.5)
    power_limit: str | None = None
    host_link: str | None = Field(default=None, min_length=1, max_length=4096)
    nvme_read: str | None = None
    nvme_write: str | None = None
    nvme_capacity: str | None = None

    tp: int | None = Degree
    pp: int | None = Degree
    vpp: int | None = Degree
    dp: int | None = Degree
    cp: int | None = Degree
    ep: int | None = Degree
    zero: int | None = Field(default=None, ge=0, le=3)
    shard_group: int | None = Degree
    sequence_parallel: bool | None = None
    schedule: ScheduleName | None = None
    recompute: Recompute | None = None
    micro_batch: int | None = Degree
    offload: OffloadName | None = None
    placement: PlacementName | None = None
    where: tuple[str, ...] = Field(default=(), max_length=_MOST_CONDITIONS)
    search_offload: bool = False
    uneven_stages: bool = False
    objective: Objective = "time"

    seq_len: int | None = Field(default=None, ge=1, le=100_000_000)
    global_batch: int | None = Field(default=None, ge=1, le=1_000_000_000)
    precision: Precision | None = None
    optimizer: OptimizerName = "adam"
    flash_attention: bool | None = None
    loss_chunks: int = Field(default=1, ge=1, le=1_000_000)
    tokens: float | str | None = None
    market: str | None = Field(default=None, min_length=1, max_length=80)
    capex: float | str | None = None
    lifetime: float | str | None = None
    use: float | str | None = None
    electricity: float | str | None = None
    pue: float | None = Field(default=None, ge=1, le=5)
    grid: float | str | None = None
    mtbf: float | str | None = None
    checkpoint: CheckpointWriter | None = None
    checkpoint_interval: float | str | None = None
    storage: str | None = None
    restart: float | str | None = None
    spare_nodes: int | None = Field(default=None, ge=0, le=1_000_000)
    jitter: float | str | None = None
    slow_hosts: float | str | None = None
    slow_factor: float | None = Field(default=None, ge=1, le=100)
    other_gpu: str | None = Field(default=None, min_length=1, max_length=4096)
    other_share: float | str | None = None
    split: Split | None = None
    length_mean: float | None = None
    length_sigma: float | None = Field(default=None, ge=0, le=4)
    packing: Packing | None = None
    sample_bytes: float | str | None = None
    token_bytes: float | None = Field(default=None, gt=0, le=64)
    decoded_bytes: float | str | None = None
    read_bytes: float | str | None = None
    data_storage: str | None = Field(default=None, min_length=1, max_length=4096)
    data_iops: float | None = Field(default=None, gt=0)
    read_latency: float | str | None = None
    worker_rate: float | None = Field(default=None, gt=0)
    workers: int | None = Field(default=None, ge=1, le=1024)
    prefetch: int | None = Field(default=None, ge=1, le=1024)
    stack: str | None = Field(default=None, min_length=1, max_length=4096)
    calibration: str | None = Field(default=None, min_length=1, max_length=4096)
    top: int = Field(default=5, ge=1, le=1000)
    advice: int | None = Field(default=None, ge=0, le=1000)
    require: tuple[str, ...] = Field(default=(), max_length=100, strict=False)

    @field_validator("where", mode="before")
    @classmethod
    def _conditions(cls, given: Any) -> Any:
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise ValueError("must be one condition such as 'tp <= 8', or a list of them")
        return tuple(constraint(text).text for text in texts)


LAYOUT_OPTIONS: tuple[str, ...] = (
    "tp",
    "pp",
    "vpp",
    "dp",
    "cp",
    "ep",
    "zero",
    "shard_group",
    "sequence_parallel",
    "schedule",
    "recompute",
    "micro_batch",
    "offload",
    "placement",
)


def flag(name: str) -> str:
    """Command-line spelling of an option: "global_batch" -> "--global-batch"."""
    return "--" + name.replace("_", "-")


_OWN = {
    "require": "estimate",
    "advice": "estimate",
    "objective": "search",
}  # options that one verb alone answers


def only_for(options: Options, verb: str) -> None:
    """Refuse what another verb answers: it would be ignored here."""
    for name, owner in _OWN.items():
        value = getattr(options, name)
        if owner != verb and value != Options.model_fields[name].default:
            shown = value[0] if isinstance(value, tuple) else value
            raise PlanError(
                flag(name), shown, f"belongs to `dpplan {owner}`; leave it out of `dpplan {verb}`"
            )


# what makes whole steps of a job longer: a pipeline or a layer alone, on equal GPUs, does not show
# it
OF_WHOLE_STEPS: tuple[str, ...] = (
    "jitter",
    "slow_hosts",
    "slow_factor",
    "other_gpu",
    "other_share",
    "split",
    "sample_bytes",
    "token_bytes",
    "decoded_bytes",
    "read_bytes",
    "data_storage",
    "data_iops",
    "read_latency",
    "worker_rate",
    "workers",
    "prefetch",
)


def refuse_whole_steps(options: Options, verb: str) -> None:
    """Refuse what a verb about a part of the step would ignore."""
    for name in OF_WHOLE_STEPS:
        if (value := getattr(options, name)) is not None:
            raise PlanError(
                flag(name),
                value,
                f"changes whole steps, `dpplan {verb}` is about a part of one; leave it out",
            )
