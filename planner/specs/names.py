"""Words with one meaning everywhere: precisions, optimizers, schedules, ways of offloading.

Imports nothing heavy: the option table is made of them, and `--help` of the option table.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, get_args

from planner import plugins
from planner.specs.modules import MODULES, RESULTS

SHARDS_GRADIENTS, SHARDS_PARAMETERS = 2, 3  # the first ZeRO stages that do
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
    "galore",
    "galore8bit",
    "apollo",
    "apollo-mini",
    "sgd",
    "sgd-momentum",
]
# formats of weights that are not trained: specs.quantised
BaseName = Literal[
    "fp32",
    "nf4",
    "nf4-double",
    "fp4",
    "fp4-double",
    "int8",
    "gptq",
    "gptq-8bit",
    "awq",
    "hqq",
    "fp8",
    "fp8-blockwise",
    "mxfp4",
]
BITSANDBYTES: tuple[BaseName, ...] = ("nf4", "nf4-double", "fp4", "fp4-double", "int8")
StateType = Literal["fp32", "bf16", "fp16", "fp8"]  # of moments
# how the loss is computed: by torch's operators, by one kernel over all logits, by one with the
# head in chunks of the tokens (Liger), or by torch in chunks of logits that are all there
LossKernel = Literal["torch", "fused", "fused-linear", "chunked", "tiled"]
# of the weights that the optimizer updates; remainder: fp32 as a bf16 weight and the 16 bits that
# it lacks; none: the weights themselves
MasterType = Literal["fp32", "fp16", "remainder", "none"]
GradientType = Literal["fp32", "bf16"]
GradientSync = Literal["each", "last"]  # micro-batches in which FSDP reduces gradients
# low-rank adapters: plain, scaled by the root of their rank, with magnitudes of columns apart
AdapterMethod = Literal["lora", "rslora", "dora"]
# layers whose moments LISA keeps: those that are trained now, or all that ever were
LisaStates = Literal["active", "visited"]
UpcastName = Literal["none", "norms", "all"]  # what beside quantised matrices is left in fp32
# those that have a file; codes of the column are positions in it
SCHEDULES = plugins.names("schedules")
if TYPE_CHECKING:
    ScheduleName = str
else:  # checked where it is read, as any other name
    ScheduleName = Literal[SCHEDULES]

# kernels of attention. cudnn: also Transformer Engine's and XLA's, which call it
AttentionName = Literal["cudnn", "flash4", "flash3", "flash2", "flash1", "fused_softmax", "eager"]
# how tensor-parallel collectives run beside the GEMMs they feed: Transformer Engine's user buffers
# (tp_comm_overlap), torch's asynchronous tensor parallelism, or not at all
TensorOverlap = Literal["none", "async", "user-buffers"]
# data-parallel communication beside compute: reduction of gradients beside backward, gathers of
# weights beside forward and beside backward
SyncPart = Literal["reduce", "forward", "backward"]
SYNC_PARTS: tuple[SyncPart, ...] = get_args(SyncPart)
# what ZeRO++ quantises: weights in 8 bit, gradients in 4
# what selective recomputation drops: the scores of attention, by torchtitan's rules by operator, or
# of a traced block all but what GEMMs, convolutions and attention give
Selective = Literal["attention", "per-op", "products"]
# who reads whole weights into host memory when training begins: every rank, one rank per host, one
# rank of all, or none: shards, or tensor after tensor on its way to the GPU
Readers = Literal["each-rank", "each-host", "one-host", "in-parts"]
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
Accelerator = Literal[
    "gpu", "tpu", "trainium"
]  # kinds of devices, by which stacks say where they run
DispatcherName = Literal["alltoall", "allgather", "deepep", "hybridep"]
# how the experts of a rank are computed: one after another, in grouped GEMMs, or with activation,
# bias and quantisation inside one such GEMM (CuTeDSL's of Transformer Engine)
ExpertKernels = Literal["loop", "grouped", "fused"]
PlacementName = Literal["tp-cp-dp-pp", "tp-cp-pp-dp"]
# objectives of fine-tuning, and where log-probabilities of a reference come from; see specs.task
TaskName = Literal["sft", "dpo", "kto", "orpo", "simpo", "reward", "distil"]
ReferenceName = Literal["held", "shared", "precomputed"]
# divergence of a student's words from its teacher's: KL(teacher | student), KL(student | teacher),
# and the generalised Jensen-Shannon divergence
DivergenceName = Literal["forward", "reverse", "jsd"]
Packing = Literal["padded", "longest", "bucketed", "packed"]
ExcessLength = Literal["truncate", "drop", "split"]
Split = Literal["equal", "proportional"]
CheckpointWriter = Literal["async", "sync"]
RunKind = Literal["plan", "project"]
FailureUnit = Literal["job", "replica"]  # what a failed host stops
# what they keep is offloaded, by Megatron-LM's names (--offload-modules), and tensors of a layer
# that is repeated, by MaxText's
OffloadModule = Literal[
    "attn_norm",
    "qkv_linear",
    "core_attn",
    "attn_proj",
    "mlp_norm",
    "expert_fc1",
    "moe_act",
    "decoder_layer_input",
    "qkv_proj",
    "context",
    "out_proj",
    "mlpwi",
    "mlpwo",
]
RecomputeKind = Literal["none", "selective", "full", "block", "group", "keep", "modules"]
Objective = Literal["time", "memory", "cost", "energy", "tokens-per-dollar"]
# of a layout's memory, see evidence.memory.verdict
Verdict = Literal["fits", "may not fit", "probably does not fit", "does not fit"]
# implementations of an optimizer on the host's processors, see specs.host
CpuOptimizerName = Literal["deepspeed", "torch-fused", "torch-eager"]
# when the host updates: beside nothing, beside the backward pass, or beside the whole next step
# frameworks whose files `dpplan export` writes, see planner/formats
TargetName = Literal[
    "megatron",
    "torchtitan",
    "nanotron",
    "maxtext",
    "verl",
    "deepspeed",
    "accelerate",
    "axolotl",
    "llama-factory",
    "hf-trainer",
    "trl",
    "ms-swift",
    "torchtune",
]
Kind = Literal["gpus", "models", "networks", "stacks", "clusters", "hosts", "schedules"]

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
OPTIMIZER_NAMES: tuple[OptimizerName, ...] = get_args(OptimizerName)
RECOMPUTE_KINDS: tuple[RecomputeKind, ...] = get_args(RecomputeKind)
OFFLOAD_MODULES: tuple[OffloadModule, ...] = get_args(OffloadModule)
OFFLOADS: tuple[OffloadName, ...] = get_args(OffloadName)
ATTENTIONS: tuple[AttentionName, ...] = get_args(AttentionName)
LOSS_KERNELS: tuple[LossKernel, ...] = get_args(LossKernel)
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

RECOMPUTE_MODULES = tuple(MODULES)
KEPT_RESULTS = tuple(RESULTS)
# rematerialisation policies by what they keep: MaxText's (layers/decoders.py, get_remat_policy),
# and the last of Pax (praxis/base_layer.py, AutodiffCheckpointType)
REMAT_POLICIES: dict[str, tuple[str, ...]] = {
    "minimal": ("qkv_proj", "out_proj", "mlpwi", "mlpwo"),
    "minimal_with_context": KEPT_RESULTS,
    "save_dot_with_context_except_mlp": ("qkv_proj", "context", "out_proj"),
    "save_dot_except_mlp": ("qkv_proj", "out_proj"),
    "save_dot_except_mlpwi": ("qkv_proj", "out_proj", "mlpwo"),
    "save_qkv_proj": ("qkv_proj",),
    "save_out_proj": ("out_proj",),
    "save_qkv_out_proj": ("qkv_proj", "out_proj"),
}
# the kinds whose size is a set, one bit per name
_SETS = {"modules": RECOMPUTE_MODULES, "keep": KEPT_RESULTS}
_RECOMPUTE_WORDS = (
    *(kind for kind in RECOMPUTE_KINDS if kind != "modules"),
    *(*RECOMPUTE_MODULES, *KEPT_RESULTS, *REMAT_POLICIES),
)
_MOST_LIKENED = 200  # characters of a text that words are looked for in
_ALIKE = 0.7  # similarity above which a word counts as a misspelling: "module" is not "moe"
_RECOMPUTE = re.compile(r"none|selective|full|(?:block|group):[1-9][0-9]{0,4}")


def _set(text: str) -> tuple[str, list[str], tuple[str, ...]]:
    """(kind, names, all known names) of a text that may list modules or results."""
    text = text.replace("-", "_")
    text = f"keep:{'+'.join(REMAT_POLICIES[text])}" if text in REMAT_POLICIES else text
    kept = text.removeprefix("keep:")
    kind = "modules" if kept == text else "keep"
    return kind, kept.split("+"), _SETS[kind]


def is_recompute(text: str) -> bool:
    """Whether a text names a way to recompute."""
    _, names, known = _set(text)
    return _RECOMPUTE.fullmatch(text) is not None or set(names) <= set(known)


def recompute_name(text: str) -> str:
    """The way to recompute in one spelling; ValueError where the text names none."""
    if not is_recompute(text):
        raise ValueError(
            f"{_meant(text, _RECOMPUTE_WORDS)}"
            "must be none, selective, full, block:N (N layers of each pipeline chunk), group:K (one"
            " input kept per K layers of a chunk), modules joined by + such as core_attn+moe_act"
            f" (of {', '.join(RECOMPUTE_MODULES)}), keep: and results joined by + (of"
            f" {', '.join(KEPT_RESULTS)}), or a policy of MaxText ({', '.join(REMAT_POLICIES)})"
        )
    return recompute_text(*recompute_parts(text))


def recompute_parts(text: str) -> tuple[int, int]:
    """(index of the kind in RECOMPUTE_KINDS, N or K or a bit per name or 0): "block:20" -> (3, 20),
    "core_attn+layernorm" -> (6, 5)."""
    if _RECOMPUTE.fullmatch(text) is None and text not in RECOMPUTE_KINDS:
        kind, names, known = _set(text)
        return RECOMPUTE_KINDS.index(kind), sum(1 << known.index(part) for part in set(names))
    kind, _, size = text.partition(":")
    return RECOMPUTE_KINDS.index(kind), int(size or 0)


def recompute_text(kind: int, size: int) -> str:
    """Inverse of `recompute_parts`."""
    name = RECOMPUTE_KINDS[kind]
    if name in _SETS:
        names = "+".join(part for i, part in enumerate(_SETS[name]) if size >> i & 1)
        return f"keep:{names}" if name == "keep" else names
    return f"{name}:{size}" if size else name


def _meant(text: str, known: Iterable[str]) -> str:
    """ "did you mean block:2? " of "blck:2", "" where a part of a text is like no word."""
    *parts, last = re.split(r"([+:])", text.strip().lower().replace("-", "_")[:_MOST_LIKENED])
    words = [*known]
    out = []
    for part in (*parts, last):
        close = difflib.get_close_matches(part, words, 1, _ALIKE)
        if not close and part not in "+:" and not part.isdecimal():
            return ""
        out.append(close[0] if close else part)
    return f"did you mean {''.join(out)}? "


def joined_words(text: str, known: tuple[str, ...]) -> str:
    """Words joined by + in canonical order. Raises ValueError for an unknown one."""
    names = [name.strip().lower() for name in text.split("+")]
    if names == ["none"]:
        return "none"
    if not set(names) <= set(known):
        raise ValueError(f"{_meant(text, known)}takes none, or {', '.join(known)}, joined by +")
    return "+".join(name for name in known if name in names)


def offload_modules_name(text: str) -> str:
    """Names of offloaded modules in canonical order. Raises ValueError for an unknown one."""
    names = [name.strip().replace("-", "_") for name in text.split("+")]
    if not set(names) <= set(OFFLOAD_MODULES):
        listed = ", ".join(OFFLOAD_MODULES)
        raise ValueError(f"{_meant(text, OFFLOAD_MODULES)}must be modules joined by +, of {listed}")
    return "+".join(name for name in OFFLOAD_MODULES if name in names)


def recompute_in(text: str, layers: int) -> str:
    """Recomputation that takes effect in a pipeline chunk of this many layers: groups end with
    their chunk, and groups of one layer or blocks of all layers are full recompute."""
    kind, _, size = text.partition(":")
    if kind == "block" and int(size) >= layers:
        return "full"
    if kind != "group":
        return text
    inside = min(int(size), layers)
    return f"group:{inside}" if inside > 1 else "full"


# bounds of the tiers of a network: nodes of an island, and oversubscription of the links between
# islands, some hundred times as much as any fabric for training has
MAX_ISLAND_NODES = 1_000_000
MAX_OVERSUBSCRIPTION = 1000.0
