"""A training stack: bytes that it keeps, fused kernels, overlapped communication, launch times.

A stack is choices and sourced numbers, never arithmetic: one TOML per stack in planner/stacks.
"""

from typing import Annotated, Literal, get_args

from pydantic import Field

from planner.ledger import Sourced
from planner.specs.base import Bytes, BytesPerSecond, Fraction, Names, Number, Seconds, Spec
from planner.specs.hardware import Efficiency, Id
from planner.specs.layout import OffloadName, PlacementName, RecomputeKind, ScheduleName
from planner.specs.names import (
    ATTENTIONS,
    LOSS_KERNELS,
    Accelerator,
    AttentionName,
    ContextWay,
    CpuOptimizerName,
    DispatcherName,
    GraphScope,
    LossKernel,
    OffloadModule,
    Precision,
    Readers,
    Selective,
    TaskName,
    TensorOverlap,
    UpcastName,
)
from planner.specs.training import Attention

ZeroStage = Annotated[int, Field(ge=0, le=3)]
Degree = Literal["tp", "pp", "cp", "ep"]
LayerSplit = Literal["even", "even, last", "ends count", "stated", "ends dealt", "blocks", "cost"]


class Supports(Spec):
    """Capabilities of the stack; the search proposes nothing else."""

    zero: list[ZeroStage]
    hybrid_shard: bool = False
    hybrid_zero: ZeroStage = 3  # lowest ZeRO stage that may shard within a group
    tensor: bool = False
    sequence_parallel: bool = False
    pipeline: bool = False
    tensor_alone: bool = True  # tensor parallelism runs without sequence parallelism
    replicas_beside: bool = True  # replicas of whole weights run beside other degrees
    # the least ZeRO stages beside degrees whose ranks share the weights as well
    context_zero: ZeroStage = 0
    expert_zero: ZeroStage = 0
    # pipelines whose chunks differ in layers: one chunk per rank, or several
    uneven: Literal["no", "one chunk", "any"] = "no"
    zero_with_pipeline: list[ZeroStage] = Field(default_factory=lambda: [0, 1])
    context: bool = False
    # ways to share a sequence, the default first
    context_ways: tuple[ContextWay, ...] = Field(default=("ring",), min_length=1, strict=False)
    expert: bool = False
    # parts of a step that can be captured as CUDA graphs
    cuda_graphs: tuple[GraphScope, ...] = Field(default=("none",), min_length=1, strict=False)
    schedules: tuple[ScheduleName, ...] = Field(default=("1f1b",), min_length=1, strict=False)
    recompute: list[RecomputeKind] = Field(min_length=1)
    # what it runs on request only: no search tries it
    parallel_on_request: tuple[Degree, ...] = Field(default=(), strict=False)
    zero_on_request: tuple[ZeroStage, ...] = Field(default=(), strict=False)
    recompute_on_request: tuple[RecomputeKind, ...] = Field(default=(), strict=False)
    offload: tuple[OffloadName, ...] = Field(default=("none",), min_length=1, strict=False)
    # modules that can be offloaded by themselves, beside pipelines and modules that are repeated
    offload_modules: tuple[OffloadModule, ...] = Field(default=(), strict=False)
    mechanisms: Names = ()  # options of mechanisms, beside those whose modules name it or its base
    offload_with_recompute: bool = False  # what recompute still keeps can be offloaded
    # weights can be updated inside backward: not at all, on one GPU, or also where their gradients
    # are sharded layer by layer
    optimizer_in_backward: Literal["no", "one GPU", "sharded"] = "no"
    # weights that are not trained may be kept in formats of bitsandbytes, GPTQ, AWQ or HQQ
    quantised_base: bool = False
    quantised_base_sharded: bool = True  # on several GPUs, too
    # where a moving average of the weights can be kept
    weight_average: tuple[Literal["none", "device", "host"], ...] = Field(
        default=("none",), min_length=1, strict=False
    )
    zeropp: bool = False  # quantised communication and secondary shards of ZeRO-3
    # what ZeRO cuts: pieces of flat buffers, or tensors along their first dimension
    flat_shards: bool = True
    # a master copy as remainders, and gradients and moments of narrow types beside it
    precision_aware: bool = False
    gradient_sync: bool = False  # FSDP reduces each micro-batch or only the last, as the user says
    # how matrices that ZeRO shards are updated by an optimizer that needs them whole: not at all,
    # each by one rank, to which it belongs, or each by all ranks of its shards, which gather it
    sharded_matrices: Literal["no", "dealt", "gathered"] = "no"
    # ways in which tokens reach the ranks of their experts
    dispatchers: tuple[DispatcherName, ...] = Field(default=("alltoall",), strict=False)
    expert_overlap: bool = False  # they do so beside compute, where a request has it
    # kernels of attention and of the loss, torch.compile and adapters: a script of torch can have
    # any; a stack with layers of its own says which it has
    attentions: tuple[AttentionName, ...] = Field(default=ATTENTIONS, strict=False)
    loss_kernels: tuple[LossKernel, ...] = Field(default=LOSS_KERNELS, strict=False)
    compile: bool = True
    adapters: bool = True
    tasks: tuple[TaskName, ...] = Field(default=get_args(TaskName), strict=False)  # objectives
    # orders of ranks, innermost first; data parallel ranks of one stage are neighbours unless the
    # stacks can do otherwise
    placements: tuple[PlacementName, ...] = Field(
        default=("tp-cp-dp-pp",), min_length=1, strict=False
    )
    # where each of these is from: a document, or a file of its code -> the keys above
    sources: dict[str, list[str]] = Field(default_factory=dict)


class StateBytes(Spec):
    """Bytes per parameter in 16-bit mixed precision; the optimizer's own moments come from the
    optimizer."""

    parameter: float = Field(gt=0, le=8)  # the copy the model holds (fp32 shards under FSDP)
    gradient: float = Field(gt=0, le=8)
    gradient_wire: float = Field(gt=0, le=8)  # type in which gradients are reduced across replicas
    master: float = Field(
        ge=0, le=8
    )  # fp32 copy in the optimizer, 0 where the parameter itself is fp32
    # of a weight that is not trained; none: as kernels read it
    frozen: float | None = Field(default=None, gt=0, le=8)
    # of a weight of a reference model beside weights that are all trained; none: as one that is not
    # trained
    reference: float | None = Field(default=None, gt=0, le=8)
    # what beside matrices of bitsandbytes its programs leave in fp32 where a rank has them whole
    prepared: UpcastName = "none"
    whole_master: bool = False  # every rank keeps the whole fp32 copy, of which it updates its part
    cast_copy: bool = False  # autocast keeps a 16-bit copy of the fp32 weights through the step
    cast_alone: bool = False  # the same on one GPU, where nothing is sharded
    bucket: float = Field(
        default=0.0, ge=0, le=8
    )  # buckets that gradients are copied into, per parameter; they stay allocated
    gradient_copy: float = Field(
        default=0.0, ge=0, le=8
    )  # gradients of one micro-batch, kept beside those that accumulate
    layer_gradient_copy: float = Field(
        default=0.0, ge=0, le=8
    )  # the same for one layer and the head: placeholders by shape
    zero2_gathers: bool = (
        False  # ZeRO-2 as FSDP has it: shards at rest, gathered from forward to the end of backward
    )
    # ZeRO-3 leaves the last layer gathered after its forward pass, since its backward pass is next
    last_gathered: bool = True
    # FSDP gathers final norm and head as a unit of their own, and the embedding as another, unless
    # it is the head's weight, too; else both are in one with all that is in no layer
    ends_apart: bool = False
    # the unit of what is in no layer is resharded after forward, too, and gathered for backward
    root_resharded: bool = False
    # elements that ZeRO-3 passes until a weight is used again, for which it stays gathered
    reuse_elements: float = Field(default=0.0, ge=0, le=1e13)
    # FSDP 1: weights of a unit are one flat parameter, and gathered into it; gradients of its views
    # are joined before they are reduced
    flat_units: bool = False
    # the optimizer's states are shared out by whole tensors, not by elements
    whole_tensors: bool = False
    narrow_moments: bool = False  # moments are in the type of weights in 16 bit
    # ZeRO-1 reduces gradients into the rank's part in the last backward pass, and frees the rest
    parts_reduced: bool = False
    # FSDP reduces gradients only after the last micro-batch and keeps them whole until then
    whole_gradients: bool = False
    # codes of a quantised base that its library keeps in buffers are sharded as parameters are
    shards_buffers: bool = False
    persistent_gradients: bool = False  # gradient buffers live through the whole step
    persistent_from: ZeroStage = 0  # from this ZeRO stage on; below, gradients end with the step
    fixed_buckets: float = Field(
        default=0.0, ge=0, le=1e13
    )  # bytes of communication buckets of fixed size
    # the phase from which ZeRO-1 and 2 have them; other than load: until backward is over
    buckets_from: Literal["load", "loss", "backward"] = "load"
    zero3_buckets: float | None = Field(
        default=None, ge=0, le=1e13
    )  # the same under ZeRO-3, where it has others
    optimizer_temporary: float = Field(
        default=0.0, ge=0, le=16
    )  # per owned parameter during the optimizer step
    # ZeRO-1 gathers what it has updated in flat copies of its part and of all weights
    flat_gather: bool = False
    # elements that ZeRO-3 updates at a time; none: all that a rank owns
    zero3_turn: float | None = Field(default=None, ge=1, le=1e13)
    flat_temporaries: bool = (
        False  # these are a few flat buffers, which find no room in what activations freed
    )


class LowPrecision(Spec):
    """Training in 8 and 4 bit."""

    recipes: tuple[Precision, ...] = Field(default=(), strict=False)  # the one called fp8 first
    # recipes under which the model keeps its weights only in the format, beside a master copy;
    # under the others 16-bit weights stay, and copies beside them through a step
    weights: tuple[Precision, ...] = Field(default=(), strict=False)
    weight_copies: bool = False  # those copies stay from the first micro-batch on
    dispatch: tuple[Precision, ...] = Field(default=(), strict=False)  # tokens sent so to experts


class Activations(Spec):
    """Bytes that backward keeps, per element of the tensor named; see formulas.memory."""

    norm: float = Field(
        ge=0, le=16
    )  # per hidden element of each norm: 2 fused (its input), 6 eager
    wide_normed: bool = False  # the normed element of an eager RMSNorm is in fp32: 2 bytes more
    mlp_gated: float = Field(ge=0, le=32)  # per MLP element of a gated MLP: 6 fused, 8 eager
    gathered_inputs: Literal["never", "without pipeline", "always"] = (
        "never"  # sequence parallelism: GEMMs keep whole inputs
    )
    logits: float = Field(
        ge=0, le=32
    )  # per logit at the loss: 2 (bf16) + 4 (fp32) and gradients held with them
    compiled_logits: float | None = Field(
        default=None, ge=0, le=32
    )  # the same where torch.compile has the loss too
    # the same where one kernel has the loss; none: 16-bit logits, whose gradient takes their place
    fused_logits: float | None = Field(default=None, ge=0, le=32)
    # likewise with trained adapters beside a frozen head, where their program has another loss
    adapter_logits: float | None = Field(default=None, ge=0, le=32)
    # bytes per logit that the training loop holds until the next micro-batch has its own
    held_logits: float = Field(default=0.0, ge=0, le=8)
    # keys and values are copied to every head that reads them, before attention
    repeated_kv: bool = False
    gathered_logits: bool = False  # tensor-parallel ranks gather whole logits for the loss
    # a LayerNorm is computed in fp32 and its result stays so (autocast)
    wide_layernorm: bool = False
    # forward holds what the final norm returns until its loss is there, though both are frozen
    head_input: bool = False
    # layers are modules of transformers, operator by operator as the code of each type has them
    published_code: bool = False
    fp8_inputs: bool = False  # in fp8, GEMMs keep their inputs in fp8 (Transformer Engine)
    # under ZeRO-3 inputs of repeated layers wait in host memory, shared out over tensor ranks
    host_checkpoints: bool = False
    # layers whose activations are alive in backward at once where weights are frozen and sharded
    frozen_layers: float = Field(default=1.0, ge=1, le=4)
    stage_outputs: float = Field(
        default=0.0, ge=0, le=8
    )  # copies of a stage's output kept per micro-batch in flight

    # rotated and unrotated parts of queries and keys are joined to new tensors, head by head
    joined_rotary: bool = False
    # values are a view of one product with queries and keys, which rotation copies
    joint_views: bool = False
    # scores are written to a persistent buffer, where attention is not FlashAttention
    score_buffer: bool = False


class Fusion(Spec):
    """Kernels: which attention by default, bytes moved by bandwidth-bound operators, share of
    bandwidth they reach."""

    attention: Attention
    fused_norm: (
        bool  # False: an RMSNorm is several elementwise kernels (a LayerNorm is one everywhere)
    )
    # False: torch's own LayerNorm kernel, which reaches less of the bandwidth, backward most of all
    fused_layernorm: bool
    fused_rotary: bool  # False: RoPE is several torch operators
    fused_gate: bool  # False: activation and multiplication of a gated MLP are separate operators
    fused_experts: list[str] = Field(
        default_factory=list
    )  # architectures on which gated experts in fp8 are one fused grouped GEMM, captured
    liger: bool = False  # a fused cross-entropy comes with Liger's norm, RoPE and gate
    fused_adapters: bool = False  # products of adapters are added inside the GEMMs of their matrix
    # recipes in which the activation of a dense MLP writes operands of the next GEMM, and backward
    # operands of the gradients' GEMMs, so that neither is written in 16 bit
    activation_casts: list[Precision] = Field(default_factory=list)
    loss: LossKernel | None = None  # of the head by default; none: torch operators
    joint_qkv: bool  # queries, keys and values are one GEMM
    joint_gate: bool  # gate and up projection are one GEMM
    # bandwidth of elementwise kernels on an unlimited memory: bytes in flight over latency
    elementwise_limit: BytesPerSecond
    cross_entropy_bytes: Number  # moved per logit, forward and backward together
    # per weight and micro-batch outside of GEMMs: accumulation, casts, communication buffers
    weight_bytes_moved: Number
    gradient_accumulation_fp32: bool  # weight gradients are added into an fp32 buffer by the GEMM


class Overlap(Spec):
    """Communication that overlaps with compute."""

    gradient_sync: bool  # data-parallel gradient reduction during backward
    bucket: Bytes | None = (
        # gradients are reduced in buckets of at least this size, each a call; none: in one call
        None
    )
    sharded_sync: bool  # the same with ZeRO-1 and its parameter all-gather
    broadcast: Seconds | None = (
        # ZeRO-1: every rank broadcasts what it updated, each such call between nodes takes this
        # long besides its bytes; none: one all-gather
        None
    )
    sharded_all_reduce: bool = (
        False  # ZeRO-1 reduces with an all-reduce where a reduce-scatter would do
    )
    interleaved_window: bool = False  # with virtual stages the window spans several micro-batches
    prefetch: bool = (
        True  # layers that ZeRO shards are gathered and reduced beside the computation of others
    )
    host_shards: bool = (
        True  # shards that live in host memory are brought beside the computation of other layers
    )
    pipeline_send: bool  # interleaved schedules overlap sends
    scatter_gather: bool  # tensor-parallel ranks split pipeline sends
    reduce_each_product: bool = (
        False  # without sequence parallelism every GEMM all-reduces its own input gradient
    )
    # share of tensor-parallel collectives under sequence parallelism that overlap with GEMMs
    tensor_hidden: Fraction
    # ways in which a request may have them overlap, beside not at all
    tensor_ways: tuple[TensorOverlap, ...] = Field(default=(), strict=False)
    offload_copies: bool = (
        False  # offloaded activations are copied on streams of their own, a layer ahead
    )
    # extra compute time while sharing the chip with a collective
    slowdown: Fraction = Sourced(
        0.45,
        "1",
        "assumed",
        "compute slows by 19 % on average and 40 % at worst beside a collective, arXiv 2507.03114;"
        " over all validated runs",
        "2026-11",
    )


class ExpertWork(Spec):
    """How routed experts are run."""

    # ranks that split every expert where the request does not say: one, or as many as split the
    # dense layers
    tensor: Literal["one", "as dense"] = "one"
    # numbers of ranks that may split every expert
    splits: Literal["any", "one or tp", "tp"] = "any"
    kernels: Literal["loop", "grouped"] = "grouped"  # one after another, or in grouped GEMMs
    # GPU architectures on which experts with adapters are in grouped GEMMs, elsewhere one after
    # another; none: they are computed as those without
    grouped_adapters: Names | None = None
    # how tokens reach the ranks of their experts: inside one host, and across hosts
    dispatcher: DispatcherName = "alltoall"
    dispatcher_across: DispatcherName = "alltoall"
    # GPU architectures on which both run beside compute of another micro-batch; of a stack with
    # fused experts where these are used
    overlapped: Names = ()
    # weights of the router multiply what goes into an expert's last GEMM, not what comes out of it:
    # no expert's output is kept
    weighted_inside: bool = False


class Launch(Spec):
    """The CPU's part: time to issue one operator, operators that one collective costs."""

    operator: Seconds
    captured: Names = ()  # GPU architectures on which whole iterations are CUDA graphs
    # GPU architectures on which its launch scripts set CUDA_LAUNCH_BLOCKING=1: the CPU waits for
    # every kernel
    blocking: Names = ()
    operators_per_collective: Number
    # what the hook of one weight's gradient costs per micro-batch, in operators; none: no Python
    # hook of its own
    operators_per_gradient: Number = Sourced(
        0.0, "1", "assumed", "gradients have no hook in Python", "2026-11"
    )
    # what ZeRO-3 does in Python around each module with a weight, before and after a pass of it
    operators_per_module: Number = Sourced(
        0.0, "1", "assumed", "modules have no hook in Python", "2026-11"
    )
    step_overhead: Seconds = Sourced(
        0.005, "s", "assumed", "data, scheduler and logging between steps", "2026-11"
    )
    # GPU time lost per layer and forward pass because the CPU waits for a result before it goes on
    layer_idle: Seconds
    # the same per adapter that is resident beside others, matrix and forward pass: where the tokens
    # of each end is read back
    adapter_idle: Seconds = Sourced(0.0, "s", "assumed", "adapters do not share a batch", "2026-11")
    # the same per token of a micro-batch, where a loop over them reads each back before the loss
    token_idle: Seconds = Sourced(0.0, "s", "assumed", "no loop over tokens", "2026-11")
    # the same per layer and pass where tensor parallel ranks share the layer, and for embedding and
    # head: dispatch of distributed tensors, ranks that wait for each other beyond their collectives
    tensor_idle: Seconds = Sourced(
        0.0, "s", "assumed", "distributed tensors are dispatched beside the GPU's work", "2026-11"
    )


class Unstated(Spec):
    """Defaults of a run whose recipe does not say; `dpplan validate` reads rows with them."""

    zero: int = Field(default=0, ge=0, le=3)  # ZeRO stage, the least: it rises until memory fits
    # beside tensor parallelism; what the table does not name is not known, and searched
    sequence_parallel: bool = False
    recompute: RecomputeKind | None = None  # the program's default; none: searched
    gpt_attention: Attention | None = None  # of GPTs with learned positions; none: as any model
    gpt_dropout: bool = False  # such GPTs train with dropout
    fused_cross_entropy: bool = False  # the head and its loss are one kernel


class StackSpec(Spec):
    """One training stack."""

    id: Id
    title: str
    aliases: Names = ()
    source: str
    base: Id | None = None  # the shipped stack that does all that this file does not state
    accelerators: tuple[Accelerator, ...] = Field(default=("gpu",), strict=False)  # it runs on
    # stacks with the same kernels and communication, so that they err alike: megatron,
    # deepspeed, fsdp (torch's own kernels and communication), jax, native (C++ and CUDA)
    family: str = ""
    # a library around which every team writes a training loop, whose speed is not the library's
    own_loop: bool = False
    release_of: Id | None = None  # the stack of which this is a later release, or a fork
    since: str | None = None  # its first release, as that stack numbers them; none: a fork
    # runs that use this profile: the stack that their rows name -> a shell pattern of sources
    printed_in: dict[str, str] = Field(default_factory=dict)
    supports: Supports
    state: StateBytes
    state_fp16: StateBytes | None = (
        None  # where fp16, with its loss scaling, is run by another optimizer
    )
    activations: Activations
    precision: LowPrecision = Field(default_factory=LowPrecision)
    fusion: Fusion
    overlap: Overlap
    experts: ExpertWork = Field(default_factory=ExpertWork)
    launch: Launch
    unstated: Unstated = Field(default_factory=Unstated)  # for measured runs only, see validation
    vocab_multiple: int = Field(default=1, ge=1, le=1_000_000)  # logits are padded to this times tp
    selective: Selective = "attention"  # what its selective recomputation drops
    recompute_stops_early: bool = (
        False  # a layer is repeated only up to the last tensor that its backward needs
    )
    layer_split: LayerSplit = "even"  # what a stage gets; see formulas.stages.contents
    dtensor: bool = False  # tensor parallelism is torch's, of DTensors and its parallel loss
    # whose stages: torch's keep weights gathered and gradients whole through a step
    pipelining: Literal["own", "torch"] = "own"
    peak_of: Literal["any rank", "first stage"] = "any rank"  # whose memory the stack's log prints
    network_frac: (
        Efficiency  # share of the fabric's achievable rate that ZeRO-3 gathers and reductions reach
    )
    fragmentation_frac: Fraction  # reserved over allocated, minus one
    # GEMM workspaces in torch's allocator: torch's own, or also Transformer Engine's
    workspaces: Literal["none", "torch", "transformer-engine"] = "torch"
    expandable_segments: bool = False  # its recipes let the allocator's segments grow
    loading: Literal["shard", "whole"] = (
        "shard"  # what a rank holds in host memory while it loads a checkpoint
    )
    pretrained: Readers = "in-parts"  # ranks that read whole weights before training
    offload_update: Literal["cpu", "gpu"] = "cpu"  # where an offloaded optimizer computes
    cpu_optimizer: CpuOptimizerName = "deepspeed"  # its implementation on the CPU
    # threads of a rank that shares its host with others: all cores, or the one that torchrun sets
    # OMP_NUM_THREADS to where the user does not
    host_threads: Literal["all", "one"] = "all"
