"""Options: the training step, and the stack that runs it."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from planner.specs.names import (
    OPTIMIZER_NAMES,
    AttentionName,
    GradientType,
    LossKernel,
    MasterType,
    OptimizerName,
    Precision,
    StateType,
    TargetName,
)
from planner.specs.options import aliases
from planner.specs.options.record import Record
from planner.specs.options.row import Group, Needs, option
from planner.specs.options.run import NOT_OF_RUNS
from planner.specs.options.verbs import METHODS, OF_METHODS, OF_SEQUENCES, PHASES, REQUESTS, RUNS
from planner.specs.precision import is_low

_LOW = Needs(
    lambda given: is_low(given.precision or ""),
    "is of training in 8 or 4 bit: take --precision fp8, mxfp8 or nvfp4",
)
_NARROW = Needs(
    lambda given: given.precision in (None, "bf16") or is_low(given.precision),
    "keeps bf16 states, with which kernels work in bf16 or less: leave it out, or take"
    " --precision bf16",
)

# of one state beside an option of all of them
_TYPES = Needs(
    lambda given: given.state_precision is None,
    "is of one state, and --state-precision bf16 of all: leave one of them out",
)


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
            verbs=REQUESTS - PHASES,
            why_not=OF_SEQUENCES,
            form="shown",
            brief=True,
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
            verbs=REQUESTS - PHASES - {"recommend batch"},
            why_not=f"is what is looked for, or {OF_SEQUENCES} (`dpplan rl`)",
            form="shown",
            brief=True,
            slider=True,
        ),
    ] = None
    precision: Annotated[
        Precision | None,
        option(
            "Compute precision: fp32, tf32, fp16, bf16, nvfp4, mxfp8, or fp8 by its scaling"
            " (delayed, tensorwise, rowwise, blockwise; fp8 alone: what the stack does)",
            label="Precision",
            aliases=aliases.PRECISIONS,
            example="fp16",
            unset="bf16, or fp16 where the GPU has no bf16",
            form="shown",
        ),
    ] = None
    low_precision: Annotated[
        str | None,
        option(
            "What is in 8 or 4 bit besides the operands of GEMMs: weights (as stored and"
            " all-gathered), attention, dispatch (tokens to experts), joined by +; or none",
            label="Also in low precision",
            example="weights+dispatch",
            unset="as the stack does",
            needs=_LOW,
            form="folded",
        ),
    ] = None
    bf16_layers: Annotated[
        int | None,
        option(
            "Layers whose GEMMs stay in 16 bit (num_layers_at_start_in_bf16 and"
            " num_layers_at_end_in_bf16 together), spread over the stages",
            label="Layers in bf16",
            least=0,
            most=1_000_000,
            example="2",
            unset="none",
            needs=_LOW,
            form="folded",
        ),
    ] = None
    optimizer: Annotated[
        OptimizerName,
        option(
            "Optimizer: " + ", ".join(OPTIMIZER_NAMES),
            label="Optimizer",
            aliases=aliases.OPTIMIZERS,
            example="sgd",
            verbs=REQUESTS - METHODS,
            why_not=OF_METHODS,
            form="shown",
        ),
    ] = "adam"
    optimizer_rank: Annotated[
        int | None,
        option(
            "Rank of the subspace in which GaLore and APOLLO keep moments (rank of optim_args)",
            label="Rank of the optimizer",
            least=1,
            most=65_536,
            example="512",
            unset="as the optimizer's own code has it: 128, of APOLLO 256, of its Mini 1",
            verbs=REQUESTS - METHODS,
            why_not=OF_METHODS,
            needs=Needs(
                lambda given: given.optimizer in ("galore", "galore8bit", "apollo", "apollo-mini"),
                "is of GaLore and APOLLO: take --optimizer galore, galore8bit or apollo",
            ),
            form="folded",
        ),
    ] = None
    state_precision: Annotated[
        Literal["bf16"] | None,
        option(
            "Type of weights, gradients and moments alike: bf16 keeps no fp32 copy of anything",
            label="States in",
            example="bf16",
            unset="as the stack does, with fp32 masters",
            verbs=REQUESTS - METHODS,
            why_not=OF_METHODS,
            needs=_NARROW,
            form="folded",
        ),
    ] = None
    moments_precision: Annotated[
        StateType | None,
        option(
            "Type of the optimizer's moments (exp_avg_dtype and exp_avg_sq_dtype of Megatron-LM)",
            label="Moments in",
            example="bf16",
            unset="as the optimizer has them",
            verbs=REQUESTS - METHODS,
            why_not=OF_METHODS,
            needs=_TYPES,
            form="folded",
        ),
    ] = None
    master_precision: Annotated[
        MasterType | None,
        option(
            "Master copy of the weights: fp32, fp16, remainder (fp32 as the 16 bits that a bf16"
            " weight lacks, store_param_remainders of Transformer Engine) or none, where the"
            " weights themselves are updated, as with stochastic rounding (main_params_dtype of"
            " Megatron-LM)",
            label="Master copy",
            example="remainder",
            unset="as the stack does",
            verbs=REQUESTS - METHODS,
            why_not=OF_METHODS,
            needs=_TYPES,
            form="folded",
        ),
    ] = None
    gradient_precision: Annotated[
        GradientType | None,
        option(
            "Type in which gradients accumulate (main_grads_dtype of Megatron-LM, grad_accum_dtype"
            " of DeepSpeed)",
            label="Gradients in",
            example="bf16",
            unset="as the stack does",
            verbs=REQUESTS - METHODS - {"strategies"},
            why_not="is set by each strategy, and by each method of fine-tuning",
            needs=_TYPES,
            form="folded",
        ),
    ] = None
    grad_reduce_precision: Annotated[
        GradientType | None,
        option(
            "Data type of the gradient reduction between replicas (grad_reduce_in_bf16 of"
            " Megatron-LM, reduce_dtype of FSDP, communication_data_type of DeepSpeed)",
            label="Gradients reduced in",
            example="bf16",
            unset="as the stack does",
            verbs=REQUESTS - {"strategies"},
            why_not="is set by each strategy",
            form="folded",
        ),
    ] = None
    expandable_segments: Annotated[
        bool | None,
        option(
            "Expandable segments of PyTorch's allocator (PYTORCH_CUDA_ALLOC_CONF"
            " expandable_segments:True), which reduce fragmentation",
            label="Expandable segments",
            unset="as the stack does",
            verbs=REQUESTS - {"batch"},
            why_not="changes memory alone, not the time of a step",
            form="folded",
        ),
    ] = None
    sub_group_size: Annotated[
        float | None,
        option(
            "Elements that ZeRO-3 of DeepSpeed updates at a time: size of its fp32 gradients, and"
            " of a tile that is read from NVMe, updated and written",
            label="Elements of an update",
            least=1,
            most=1e13,
            example="1e6",
            unset="1e9, on NVMe drives 1e8",
            verbs=REQUESTS - METHODS - {"strategies"},
            why_not="is set by each strategy, and by each method of fine-tuning",
            needs=Needs(
                lambda given: given.zero in (None, 3), "is of ZeRO-3: take --zero 3", "--zero 3"
            ),
            form="folded",
        ),
    ] = None
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
    attention: Annotated[
        AttentionName | None,
        option(
            "Attention kernel: cudnn (as in Transformer Engine), flash4, flash3, flash2, flash1,"
            " fused_softmax or eager",
            label="Attention kernel",
            aliases=aliases.ATTENTIONS,
            example="flash1",
            unset="as the stack does",
            needs=Needs(
                lambda given: given.flash_attention is None,
                "says more than --flash-attention: leave that out",
            ),
            form="folded",
        ),
    ] = None
    compile: Annotated[
        bool,
        option(
            "Kernels that torch.compile generates in place of torch operators, loss included",
            label="torch.compile",
            form="folded",
        ),
    ] = False
    cuda_graphs: Annotated[
        str | None,
        option(
            "Parts of a step captured as CUDA graphs: none, attn, mamba, mlp, moe_router,"
            " moe_preprocess, layer or full, joined by +",
            label="CUDA graphs",
            example="attn+moe_router",
            unset="as the stack does",
            form="folded",
        ),
    ] = None
    fused_kernels: Annotated[
        bool,
        option(
            "Fused kernels for norm, RoPE and gated activation, as in Liger or Transformer Engine",
            label="Fused kernels",
            form="folded",
        ),
    ] = False
    fused_norm: Annotated[
        bool | None,
        option(
            "Norms as one fused kernel each; without, RMSNorm is a chain of torch operators, and"
            " LayerNorm torch's own kernel",
            label="Fused norms",
            example="false",
            unset="as the stack does",
            form="folded",
        ),
    ] = None
    overlap: Annotated[
        bool | None,
        option(
            "Communication and copies to the host run beside compute where the stack overlaps"
            " them; --no-overlap: nothing does",
            label="Overlap",
            example="false",
            unset="as the stack does",
            form="folded",
        ),
    ] = None
    loss_kernel: Annotated[
        LossKernel | None,
        option(
            "How the loss is computed: torch, fused (one kernel over all logits, whose gradient"
            " takes their place), fused-linear (with the head, in chunks of the tokens: Liger, and"
            " its norm, RoPE and gate where the stack has them) or chunked (all logits in 16 bit,"
            " the loss in chunks of them: torchtune)",
            label="Loss kernel",
            aliases=aliases.LOSS_KERNELS,
            example="fused-linear",
            unset="as the stack does",
            verbs=REQUESTS - {"recommend offload"},
            why_not="is of the loss, not of a layer",
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
    mtp: Annotated[
        int | None,
        option(
            "Multi-token prediction (MTP) modules trained with the model, each with its own"
            " layer, projection and loss",
            label="Multi-token prediction",
            least=0,
            most=100,
            example="1",
            unset="from the model file or --pipeline-layout; none for a config.json",
            form="folded",
        ),
    ] = None
    tokens: Annotated[
        int | float | str | None,
        option(
            "Training tokens of the whole run, e.g. 15T: adds days, cost and energy",
            label="Training tokens",
            unit="tokens",
            least=1,
            most=1e18,
            example="2T",
            verbs=RUNS - METHODS,
            why_not=f"{NOT_OF_RUNS}, or has of --examples (`dpplan tune`)",
            form="shown",
            brief=True,
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
            brief=True,
        ),
    ] = None
    for_target: Annotated[
        TargetName | None,
        option(
            "Framework whose files will say the plan (dpplan export --to): its stack, and only"
            " layouts that its files can say",
            label="For the files of",
            example="megatron",
            unset="any",
            verbs=frozenset({"estimate", "search"}),
            form="folded",
            short="--for",
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
