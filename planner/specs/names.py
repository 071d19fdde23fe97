"""Words with one meaning everywhere: precisions, optimizers, schedules, ways of offloading.

Imports nothing heavy: the option table is made of them, and `--help` of the option table.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

# fp8 is the recipe that the stack calls so; the others name it, see specs.precision
Precision = Literal[
    "fp32",
    "tf32",
    "fp16",
    "bf16",
    "fp8",
    "fp8-delayed",
    "fp8-tensorwise",
    "fp8-rowwise",
    "fp8-blockwise",
    "mxfp8",
    "nvfp4",
]
# what may be in 8 or 4 bit beside the operands of GEMMs: the weights that the model keeps, what
# attention reads (8 bit, also beside nvfp4), tokens on their way to experts
LowPart = Literal["weights", "attention", "dispatch"]
# what each keeps and computes: formulas.optimizers
OptimizerName = Literal[
    "adam",
    "paged-adam",
    "adam8bit",
    "paged-adam8bit",
    "adafactor",
    "lion",
    "muon",
    "shampoo",
    "soap",
    "sgd",
    "sgd-momentum",
]
StateType = Literal["fp32", "bf16", "fp16", "fp8"]  # of moments
# of the weights that the optimizer updates; remainder: fp32 as a bf16 weight and the 16 bits that
# it lacks; none: the weights themselves
MasterType = Literal["fp32", "fp16", "remainder", "none"]
GradientType = Literal["fp32", "bf16"]
ScheduleName = Literal[
    "1f1b",
    "gpipe",
    "interleaved",
    "zb-1p",
    "zb-2p",
    "dualpipe",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "dualpipev",
    "breadth-first",
    "sequential",
]
# kernels of attention. cudnn: also Transformer Engine's and XLA's, which call it
AttentionName = Literal["cudnn", "flash4", "flash3", "flash2", "flash1", "fused_softmax", "eager"]
# how tensor-parallel collectives run beside the GEMMs they feed: Transformer Engine's user buffers
# (tp_comm_overlap), torch's asynchronous tensor parallelism, or not at all
TensorOverlap = Literal["none", "async", "user-buffers"]
# how the ranks of context parallelism share a sequence
ContextWay = Literal["ring", "all-gather", "ulysses", "hybrid"]
# parts of a training step that are captured as CUDA graphs, as Megatron-LM names them; full: the
# whole iteration, layer: whole layers
GraphScope = Literal[
    "none", "attn", "mamba", "mlp", "moe_router", "moe_preprocess", "layer", "full"
]
OffloadName = Literal[
    "none",
    "optimizer",
    "params",
    "activations",
    "optimizer-nvme",
    "params-optimizer-nvme",
    "params-nvme",
]
# which ranks are neighbours, innermost first: what comes first stays inside a node or NVLink domain
DispatcherName = Literal["alltoall", "allgather", "deepep", "hybridep"]
# how the experts of a rank are computed: one after another, in grouped GEMMs, or with activation,
# bias and quantisation inside one such GEMM (CuTeDSL's of Transformer Engine)
ExpertKernels = Literal["loop", "grouped", "fused"]
PlacementName = Literal["tp-cp-dp-pp", "tp-cp-pp-dp"]
Packing = Literal["padded", "packed"]
Split = Literal["equal", "proportional"]
CheckpointWriter = Literal["async", "sync"]
RecomputeKind = Literal["none", "selective", "full", "block", "group"]
Objective = Literal["time", "memory", "cost", "energy", "tokens-per-dollar"]
# of a layout's memory, see evidence.memory.verdict
Verdict = Literal["fits", "may not fit", "probably does not fit", "does not fit"]
# implementations of an optimizer on the host's processors, see specs.host
CpuOptimizerName = Literal["deepspeed", "torch-fused", "torch-eager"]
# when the host updates: beside nothing, beside the backward pass, or beside the whole next step
CpuUpdateName = Literal["after", "overlapped", "delayed"]
Kind = Literal["gpus", "models", "networks", "stacks", "clusters", "hosts", "schedules"]

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
OPTIMIZER_NAMES: tuple[OptimizerName, ...] = get_args(OptimizerName)
RECOMPUTE_KINDS: tuple[RecomputeKind, ...] = get_args(RecomputeKind)
SCHEDULES: tuple[ScheduleName, ...] = get_args(ScheduleName)
OFFLOADS: tuple[OffloadName, ...] = get_args(OffloadName)
ATTENTIONS: tuple[AttentionName, ...] = get_args(AttentionName)
LOW_PARTS: tuple[LowPart, ...] = get_args(LowPart)
CONTEXT_WAYS: tuple[ContextWay, ...] = get_args(ContextWay)
GRAPH_SCOPES: tuple[GraphScope, ...] = get_args(GraphScope)
PLACEMENTS: tuple[PlacementName, ...] = get_args(PlacementName)
KINDS: tuple[Kind, ...] = get_args(Kind)
# names of the columns that hold codes, positions in these (specs/columns.py)
CODES: dict[str, tuple[str, ...]] = {
    "recompute": RECOMPUTE_KINDS,
    "schedule": SCHEDULES,
    "offload": OFFLOADS,
    "placement": PLACEMENTS,
}

# what each way of offloading keeps where: "params-optimizer-nvme" has parameters in host memory and
# the optimizer on the drives, "params-nvme" both on the drives; "params" has both in host memory
NVME: tuple[OffloadName, ...] = ("optimizer-nvme", "params-optimizer-nvme", "params-nvme")
OFFLOADED_OPTIMIZER: tuple[OffloadName, ...] = ("optimizer", "params", *NVME)
OFFLOADED_PARAMS: tuple[OffloadName, ...] = ("params", "params-optimizer-nvme", "params-nvme")
NVME_PARAMS: tuple[OffloadName, ...] = ("params-nvme",)

_RECOMPUTE = re.compile(r"none|selective|full|(?:block|group):[1-9][0-9]{0,4}")


def is_recompute(text: str) -> bool:
    """Whether a text names a way to recompute."""
    return _RECOMPUTE.fullmatch(text) is not None


def recompute_name(text: str) -> str:
    """The text again; ValueError where it names no way to recompute."""
    if not is_recompute(text):
        raise ValueError(
            "must be none, selective, full, block:N (N layers of each pipeline chunk) or group:K"
            " (one input kept per K layers of a chunk)"
        )
    return text


def recompute_parts(text: str) -> tuple[int, int]:
    """(index of the kind in RECOMPUTE_KINDS, N or K or 0): "block:20" -> (3, 20)."""
    kind, _, size = text.partition(":")
    return RECOMPUTE_KINDS.index(kind), int(size or 0)


def recompute_in(text: str, layers: int) -> str:
    """What this is where a chunk of a pipeline has so many layers: a group ends with its chunk, one
    of a single layer is full recompute, and so is a block that has every layer."""
    kind, _, size = text.partition(":")
    if kind == "block" and int(size) >= layers:
        return "full"
    if kind != "group":
        return text
    inside = min(int(size), layers)
    return f"group:{inside}" if inside > 1 else "full"


# bounds of the tiers of a network: nodes of an island, and oversubscription of the links between
# islands, some hundred times that of any fabric for training
MAX_ISLAND_NODES = 1_000_000
MAX_OVERSUBSCRIPTION = 1000.0
