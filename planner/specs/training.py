"""How it is trained: sequence, batch, precision, optimizer, and the switches that change kernels or
bytes."""

from typing import Literal

from pydantic import Field

from planner.specs.adapters import AdapterSpec
from planner.specs.base import Spec
from planner.specs.names import (
    AttentionName,
    BaseName,
    ContextWay,
    CpuOptimizerName,
    DispatcherName,
    ExpertKernels,
    GradientSync,
    GradientType,
    LossKernel,
    LowPart,
    MasterType,
    OptimizerName,
    Precision,
    Readers,
    ReferenceName,
    Selective,
    StateType,
    SyncPart,
    TaskName,
    UpcastName,
)
from planner.specs.task import TASKS

Attention = AttentionName


def scores_on_chip(attention: Attention) -> bool:
    """Whether scores never leave the chip: FlashAttention and cuDNN's equal of it."""
    return attention not in ("fused_softmax", "eager")


MOST_SEQUENCES = 1_000_000_000  # of a global batch


class TrainingSpec(Spec):
    """One optimizer step, and the tokens of the run. None: the stack's default."""

    seq_len: int = Field(ge=1, le=100_000_000)  # tokens per sequence
    global_batch: int = Field(ge=1, le=MOST_SEQUENCES)  # per optimizer step
    precision: Precision = "bf16"
    optimizer: OptimizerName = "adam"
    optimizer_rank: int | None = Field(default=None, ge=1, le=65_536)  # of GaLore and APOLLO
    tokens: float | None = Field(default=None, gt=0, le=1e18)  # tokens of the whole run

    attention: Attention | None = None
    context_way: ContextWay | None = None  # how ranks of context parallelism share a sequence
    fused_norm: bool | None = None
    channels_last: bool = False  # of images, as kernels of convolutions read them
    # norm, RoPE and gate are one kernel each: Liger, Transformer Engine's layers, fms-acceleration
    fused_kernels: bool = False
    loss_kernel: LossKernel | None = None
    loss_chunks: int = Field(
        default=1, ge=1, le=1_000_000
    )  # parts of the tokens whose logits, loss and gradients come in turn
    loss_share: float = Field(default=1.0, gt=0, le=1)  # share of the tokens that the loss counts
    compile: bool | None = None
    # what is in 8 or 4 bit beside operands of GEMMs; None: what the stack does
    low_parts: tuple[LowPart, ...] | None = Field(default=None, strict=False)
    wide_layers: int = Field(default=0, ge=0, le=1_000_000)  # whose GEMMs stay in 16 bit
    selective: Selective | None = None  # None: as the stack does
    gradient_reduce: GradientType | None = None  # type of gradients on the wire
    gradient_precision: GradientType | None = None  # type in which they accumulate
    gradient_sync: GradientSync | None = None  # None: as the stack does
    moments_precision: StateType | None = None  # where the optimizer has no type of its own
    master_precision: MasterType | None = None
    overlap: bool | None = None  # False: nothing overlaps
    # data-parallel communication beside compute, of that which the stack overlaps; None: all of it
    data_overlap: tuple[SyncPart, ...] | None = Field(default=None, strict=False)
    data_bucket: float | None = Field(default=None, ge=1000, le=1e13)  # bytes of gradients
    # type in which weights, gradients and moments are kept: bf16, and nothing in fp32; None: as the
    # stack does
    state_precision: Literal["bf16"] | None = None
    expandable_segments: bool | None = None  # of PyTorch's allocator (PYTORCH_CUDA_ALLOC_CONF)
    weight_readers: Readers | None = None  # None: as the stack does
    sub_group_size: float | None = Field(default=None, ge=1, le=1e13)  # elements of a ZeRO-3 update
    # what is trained: all (only some layers: a mechanism), or adapters beside frozen weights
    adapter: AdapterSpec | None = None
    base_precision: BaseName | None = None  # matrices beside adapters; None: as kernels read them
    base_group: int | None = Field(default=None, ge=8, le=65_536)  # weights that share a scale
    base_upcast: UpcastName | None = None  # beside these matrices in fp32; None: as the stack does
    # the objective, and where log-probabilities of its reference come from; None: there is none
    task: TaskName = "sft"
    reference: ReferenceName | None = None
    train_embeddings: bool = False  # embedding and head beside adapters, or beside the last layers

    cpu_optimizer: CpuOptimizerName | None = None  # of an optimizer that is offloaded

    # a mixture of experts
    etp: int | None = Field(default=None, ge=1, le=1_000_000)  # ranks that split every expert
    expert_kernels: ExpertKernels | None = None  # how a rank computes its experts
    dispatcher: DispatcherName | None = None  # how tokens reach the ranks of their experts
    # tokens of the fullest rank of experts over the mean, and what it may have at most
    expert_load: float = Field(default=1.0, ge=1, le=1000)
    # standard deviation of an expert's load over its mean, from which the fullest rank's load
    # follows; None: as expert_load says
    expert_spread: float | None = Field(default=None, ge=0, le=100)
    capacity_factor: float | None = Field(default=None, ge=1, le=1000)

    @property
    def free_passes(self) -> int:
        """Forward passes over the batch of a step without gradients, of model or reference."""
        objective = TASKS[self.task]
        run = self.reference in ("held", "shared")
        return objective.own + objective.reference * run

    @property
    def early_passes(self) -> int:
        """Forward passes over every example before the run."""
        return TASKS[self.task].reference * (self.reference == "precomputed")

    @property
    def quantised(self) -> bool:
        """Whether frozen matrices are kept in fewer bits than kernels read."""
        return self.base_precision not in (None, "fp32")

    @property
    def mixed_precision(self) -> bool:
        """Whether kernels work on 16-bit (or 8-bit) copies of fp32 master weights."""
        return self.precision not in ("fp32", "tf32")

    @property
    def element_bytes(self) -> float:
        """Bytes of an activation element: 8 and 4 bit are formats of GEMM operands only."""
        return 2.0 if self.mixed_precision else 4.0
