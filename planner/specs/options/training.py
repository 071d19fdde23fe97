"""Options: the training step, and the stack that runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from planner.specs.names import OptimizerName, Precision
from planner.specs.options import aliases
from planner.specs.options.record import Record
from planner.specs.options.row import Group, option
from planner.specs.options.run import NOT_OF_RUNS
from planner.specs.options.verbs import REQUESTS, RUNS


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(Record):
    GROUP: ClassVar = Group("training", "Training")
    VERBS: ClassVar = REQUESTS

    seq_len: Annotated[
        int | None,
        option(
            "Sequence length in tokens; k is 1,024: 128k = 131,072",
            label="Sequence length",
            reads="context",
            least=1,
            most=100_000_000,
            example="512",
            unset="as the model was pre-trained",
            form="shown",
            slider=True,
        ),
    ] = None
    global_batch: Annotated[
        int | None,
        option(
            "Global batch size: sequences per optimizer step",
            label="Global batch size",
            least=1,
            most=1_000_000_000,
            example="64",
            unset="as the model was trained, else near 4 Mi tokens",
            verbs=REQUESTS - {"recommend batch"},
            why_not="is what is looked for",
            form="shown",
            slider=True,
        ),
    ] = None
    precision: Annotated[
        Precision | None,
        option(
            "Compute precision: fp32, tf32, fp16, bf16 or fp8",
            label="Precision",
            aliases=aliases.PRECISIONS,
            example="fp16",
            unset="bf16, or fp16 where the GPU has no bf16",
            form="shown",
        ),
    ] = None
    optimizer: Annotated[
        OptimizerName,
        option(
            "Optimizer: adam, adam8bit, adafactor, sgd or sgd-momentum",
            label="Optimizer",
            aliases=aliases.OPTIMIZERS,
            example="sgd",
            form="shown",
        ),
    ] = "adam"
    flash_attention: Annotated[
        bool | None,
        option(
            "FlashAttention kernels",
            label="FlashAttention",
            example="false",
            unset="as the stack does",
            form="folded",
        ),
    ] = None
    loss_chunks: Annotated[
        int,
        option(
            "Chunks of the fused linear cross-entropy loss",
            label="Loss chunks",
            least=1,
            most=1_000_000,
            example="8",
            verbs=REQUESTS - {"recommend offload"},
            why_not="is of the loss, not of a layer",
            form="folded",
        ),
    ] = 1
    tokens: Annotated[
        int | float | str | None,
        option(
            "Training tokens of the whole run, e.g. 15T: adds days, cost and energy",
            label="Training tokens",
            unit="tokens",
            least=1,
            most=1e18,
            example="2T",
            verbs=RUNS,
            why_not=NOT_OF_RUNS,
            form="shown",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class StackOptions(Record):
    GROUP: ClassVar = Group("stack", "Stack")
    VERBS: ClassVar = REQUESTS

    stack: Annotated[
        str | None,
        option(
            "Training stack (dpplan list stacks)",
            label="Stack",
            catalogue="stacks",
            example="megatron-core",
            unset="the usual one of each family of layouts",
            verbs=REQUESTS - {"strategies"},
            why_not="is set by each strategy",
            form="shown",
        ),
    ] = None
    calibration: Annotated[
        str | None,
        option(
            "Calibration file of a measured node (dpplan calibrate)",
            label="Calibration",
            file="read",
            example="calibration.toml",
            verbs=REQUESTS | {"allreduce", "batchnorm"},
        ),
    ] = None
