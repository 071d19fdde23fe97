"""Options: the training step, and the stack that runs it."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from planner.specs.names import (
    AttentionName,
    GradientSync,
    GradientType,
    LossKernel,
    MasterType,
    OptimizerName,
    Precision,
    Readers,
    StateType,
    TargetName,
)
from planner.specs.options.record import Record
from planner.specs.options.row import Group
from planner.specs.options.verbs import REQUESTS


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(Record):
    GROUP: ClassVar = Group("training", "Training")
    VERBS: ClassVar = REQUESTS

    seq_len: int | None = None
    resolution: str | None = None
    frames: int | None = None
    images_per_sample: float | None = None
    global_batch: int | None = None
    precision: Precision | None = None
    low_precision: str | None = None
    bf16_layers: int | None = None
    optimizer: OptimizerName = "adam"
    optimizer_rank: int | None = None
    state_precision: Literal["bf16"] | None = None
    moments_precision: StateType | None = None
    master_precision: MasterType | None = None
    gradient_precision: GradientType | None = None
    grad_reduce_precision: GradientType | None = None
    gradient_sync: GradientSync | None = None
    expandable_segments: bool | None = None
    sub_group_size: float | None = None
    weight_readers: Readers | None = None
    flash_attention: bool | None = None
    attention: AttentionName | None = None
    compile: bool = False
    fused_kernels: bool = False
    fused_norm: bool | None = None
    channels_last: bool = False
    overlap: bool | None = None
    loss_kernel: LossKernel | None = None
    loss_chunks: int = 1
    loss_share: float | str | None = None
    mtp: int | None = None
    tokens: int | float | str | None = None
    samples: int | None = None


@dataclass(frozen=True, kw_only=True)
class StackOptions(Record):
    GROUP: ClassVar = Group("stack", "Stack")
    VERBS: ClassVar = REQUESTS

    stack: str | None = None
    for_target: TargetName | None = None
    calibration: str | None = None
