"""How it is trained: sequence, batch, precision, optimizer, and the switches that change kernels or
bytes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from planner.specs.base import Spec
from planner.specs.names import OptimizerName, Precision

Attention = Literal["flash3", "flash2", "flash1", "fused_softmax", "eager"]
Fp8Recipe = Literal["delayed", "tensorwise", "rowwise", "blockwise", "mxfp8"]


MOST_SEQUENCES = 1_000_000_000  # of a global batch


class TrainingSpec(Spec):
    """One optimizer step, and how many tokens in all. None means: what the stack does by
    default."""

    seq_len: int = Field(ge=1, le=100_000_000)  # tokens per sequence
    global_batch: int = Field(ge=1, le=MOST_SEQUENCES)  # per optimizer step
    precision: Precision = "bf16"
    optimizer: OptimizerName = "adam"
    tokens: float | None = Field(default=None, gt=0, le=1e18)  # tokens of the whole run

    attention: Attention | None = None
    fused_norm: bool | None = None
    fused_cross_entropy: bool | None = None
    loss_chunks: int = Field(
        default=1, ge=1, le=1_000_000
    )  # parts of the tokens whose logits, loss and gradients come in turn
    compile: bool | None = None
    async_tensor_parallel: bool = False
    fp8_recipe: Fp8Recipe | None = None
    selective: Literal["attention", "per_op"] = "attention"  # what `recompute selective` drops
    gradient_reduce: Literal["fp32", "bf16"] | None = None  # type of gradients on the wire
    overlap: bool | None = None  # False: nothing overlaps
    moment_bytes: float | None = Field(
        default=None, gt=0, le=16
    )  # Adam moments per parameter, both together

    @property
    def mixed_precision(self) -> bool:
        """Whether kernels work on 16-bit (or 8-bit) copies of fp32 master weights."""
        return self.precision not in ("fp32", "tf32")

    @property
    def element_bytes(self) -> float:
        """Bytes of an activation element: fp8 is the format of GEMM operands alone."""
        return 2.0 if self.mixed_precision else 4.0
