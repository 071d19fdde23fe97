"""Hardware: GPUs and links, every number with unit, source, date and kind (vendor, measured,
assumed)."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from planner.ledger import Sourced
from planner.specs.base import (
    Bytes,
    BytesPerSecond,
    FlopPerSecond,
    Fraction,
    Names,
    Quantity,
    Seconds,
    Spec,
    Watts,
)
from planner.specs.names import PRECISIONS as PRECISIONS
from planner.specs.names import Accelerator, AttentionName
from planner.specs.names import Precision as Precision
from planner.specs.precision import NEEDS, RECIPES, REFUSED

_ACCELERATORS: dict[str, Accelerator] = {"google": "tpu", "aws": "trainium"}  # by vendor
Id = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$")]
Efficiency = Annotated[Sourced, Quantity("1", maximum=1.5)]
Exponent = Annotated[Sourced, Quantity("1", exclusive=False, maximum=10)]  # of a curve's loss


class DenseRates(Spec):
    """Dense matrix rates with fp32 accumulation, the ones training uses. A missing precision is not
    supported."""

    fp32: FlopPerSecond
    tf32: FlopPerSecond | None = None
    fp16: FlopPerSecond | None = None
    bf16: FlopPerSecond | None = None
    fp8: FlopPerSecond | None = None  # one scale per tensor or row
    mxfp8: FlopPerSecond | None = None  # units that scale blocks of 32 themselves
    nvfp4: FlopPerSecond | None = None


class Fp16AccumulateRates(Spec):
    """Rates with fp16 accumulation, quoted by vendors for GeForce cards; inference may use them,
    training does not."""

    fp16: FlopPerSecond | None = None
    fp8: FlopPerSecond | None = None


Tokens = Annotated[Sourced, Quantity("token")]


class AttentionCurve(Spec):
    """Speed of one causal attention kernel at head width 128, with nothing else on this GPU.

    forward, backward: share of the dense rate over long sequences, at the clock that the kernel
    itself sustains. half_forward, half_backward: tokens at which it reaches half of that rate.
    """

    forward: Efficiency
    backward: Efficiency
    half_forward: Tokens
    half_backward: Tokens


class KernelCurve(Spec):
    """How fast kernels really run on this GPU; the parameters of formulas.kernels.

    like: a shipped GPU whose tiles, gaps and memory share stand in for values left out here for
    lack of a table (CURVE_SHAPE).
    gemm_efficiency: share of the dense rate inside a full wave of the largest tile, in a burst too
    short for the power limit.
    fp8_efficiency, nvfp4_efficiency: likewise of the fp8 and nvfp4 rates; left out: as in 16 bit.
    gemm_tile_exponent: loss of smaller tiles, rate ~ (tile area / 32768) ** exponent.
    gemm_tile_overhead: prologue and epilogue of one tile.
    gemm_wave_softness: 0 = whole waves of tiles (last wave runs by itself), 1 = tail waves overlap
    perfectly.
    gemm_launch: fixed time of one GEMM kernel of a stream, with the gap to the next one.
    kernel_gap: fixed time of any other kernel of a stream: start, drain and the gap to the next
    one.
    memory_frac: share of memory bandwidth that a GEMM bound by memory reaches. attention_forward,
    attention_backward: share of the dense rate reached by flash attention on causal FLOP.
    sustained_clock: tensor clock under a training load over the clock of the kernel tables (power
    limit).
    power_clock: tensor clock of long GEMMs over short ones in a table: the measured part of
    sustained_clock; no estimate reads it.
    attention: curves of attention kernels by name, where tables are known; other kernels follow
    attention_forward and attention_backward.
    attention_half_sequence: tokens at which the causal kernel reaches half of its long-sequence
    rate; left out: as on an A100.
    attention_width_exponent: loss of narrow heads, rate ~ (head width / 128) ** exponent; left out:
    as on an A100.
    """

    like: Id | None = None
    gemm_efficiency: Efficiency
    fp8_efficiency: Efficiency | None = None
    nvfp4_efficiency: Efficiency | None = None
    gemm_tile_exponent: Exponent
    gemm_tile_overhead: Seconds
    gemm_wave_softness: Fraction
    gemm_launch: Seconds
    kernel_gap: Seconds
    memory_frac: Efficiency
    attention_forward: Efficiency
    attention_backward: Efficiency
    sustained_clock: Efficiency
    power_clock: Efficiency | None = None
    attention: dict[AttentionName, AttentionCurve] = Field(default_factory=dict)
    attention_half_sequence: Tokens | None = None
    attention_width_exponent: Exponent | None = None


# of a curve what lies in tiles and latencies, which chips of one design share; its rates belong to
# each card's power and memory
CURVE_SHAPE = (
    "gemm_tile_exponent",
    "gemm_tile_overhead",
    "gemm_wave_softness",
    "gemm_launch",
    "kernel_gap",
    "memory_frac",
)


class OperatorTimes(Spec):
    """Measured seconds per element of operators other than GEMMs, in one precision; written by
    `dpplan calibrate`.

    What is left out is counted in bytes moved (planner/estimate/layer/operators.py), as all shipped
    profiles do.
    """

    layernorm_forward: Seconds | None = None  # per hidden element of one norm
    layernorm_backward: Seconds | None = None
    rmsnorm_forward: Seconds | None = None
    rmsnorm_backward: Seconds | None = None
    residual_forward: Seconds | None = None  # per hidden element of one residual sum
    residual_backward: Seconds | None = None
    plain_forward: Seconds | None = None  # per inner element of a plain MLP: its activation
    plain_backward: Seconds | None = None
    gated_forward: Seconds | None = (
        None  # per inner element of a gated MLP: activation and multiplication
    )
    gated_backward: Seconds | None = None
    rotary_forward: Seconds | None = (
        None  # per element of queries, keys and values: RoPE and copies for attention
    )
    rotary_backward: Seconds | None = None
    copies_forward: Seconds | None = None  # the same without RoPE
    copies_backward: Seconds | None = None
    loss: Seconds | None = None  # per logit, forward and backward together
    embedding: Seconds | None = None  # per token and hidden element, forward and backward together
    table: Seconds | None = (
        None  # per element of the embedding table and micro-batch: its dense gradient
    )
    optimizer: Seconds | None = None  # per parameter that a rank updates


class NvmeSpec(Spec):
    """NVMe drives of one node as a training stack sees them: all drives together, shared by all
    GPUs of the node."""

    read: BytesPerSecond  # long sequential reads into host memory
    write: BytesPerSecond  # the same, written
    capacity: Bytes | None = None  # room for offloaded states; None: not known, and not checked


USUAL_HOST = "server-ddr4"  # of a node that names none


class TypicalNode(Spec):
    """The server this GPU is usually found in; used when the request names no other."""

    gpus_per_node: int = Field(ge=1, le=1024)
    intra_node: Id
    inter_node: Id
    nics_per_node: int = Field(ge=1, le=256)
    nic_bandwidth: BytesPerSecond  # one direction, per NIC
    nvlink_domain: int | None = Field(
        default=None, ge=1, le=1_000_000
    )  # GPUs in one switched domain, when larger than the node
    host_memory: Bytes | None = None
    host_link: Id = "pcie4"
    host: Id = USUAL_HOST  # processors and memory, see specs.host
    nvme: NvmeSpec | None = None  # its drives, for those who offload to them


class CacheSpec(Spec):
    """The last cache before the memory of a GPU, shared by all its units."""

    size: Bytes
    bandwidth: BytesPerSecond  # of reads and writes that stay in it


class GpuSpec(Spec):
    """One exact GPU variant."""

    id: Id
    title: str
    aliases: Names = ()
    vendor: Literal["nvidia", "amd", "google", "aws", "other"] = "nvidia"
    architecture: str
    segment: Literal["data center", "workstation", "consumer"] = "data center"
    torch_name: str | None = None  # as torch.cuda.get_device_name has it, also of another size
    skypilot: str | None = None  # as SkyPilot's list of accelerators has it
    memory: Bytes  # as sold
    usable_memory: Bytes  # what the driver lets a framework allocate (torch total_memory)
    memory_bandwidth: BytesPerSecond
    cache: CacheSpec | None = None  # None: not known, kernels go to memory
    compute_units: int = Field(ge=1, le=100_000)  # streaming multiprocessors or compute units
    power: Watts
    dense: DenseRates
    dense_fp16_accumulate: Fp16AccumulateRates | None = None
    links: dict[str, BytesPerSecond] = Field(
        default_factory=dict
    )  # one-way bandwidth per GPU over a link, where it differs from the link's own
    kernels: KernelCurve
    operators: dict[Precision, OperatorTimes] = Field(
        default_factory=dict
    )  # measured, by precision
    context_memory: (
        Bytes  # CUDA/HIP context and library workspaces, outside the framework's allocator
    )
    node: TypicalNode

    @property
    def accelerator(self) -> Accelerator:
        """Kind of device, by which stacks say where they run."""
        return _ACCELERATORS.get(self.vendor, "gpu")

    def rate(self, precision: str) -> Sourced | None:
        """Dense rate with fp32 accumulation, None where the hardware lacks the precision."""
        if self.architecture in REFUSED.get(precision, ()):
            return None
        recipe = RECIPES.get(precision)
        value: Sourced | None = getattr(self.dense, recipe.rate if recipe else precision)
        return value

    @property
    def expands_segments(self) -> bool:
        """Whether PyTorch's allocator can expand segments. It needs virtual memory of the CUDA
        driver; elsewhere it warns and ignores the setting (c10/cuda/CUDAAllocatorConfig.h)."""
        return self.vendor == "nvidia"

    def lacks(self, precision: str) -> str:
        """Sentence that the GPU lacks a precision: why, and the precisions that it has."""
        recipe = RECIPES.get(precision)
        needs = NEEDS.get(recipe.rate if recipe else precision)
        why = f" ({needs})" if needs else ""
        has = ", ".join(p for p in PRECISIONS if self.rate(p) is not None)
        return f"{self.title} does not have it{why}; it has {has}"


class LinkSpec(Spec):
    """A link between GPUs of one node, or a fabric between nodes.

    Inside a node a collective takes  base + passes (n-1) latency/2 + volume / (bandwidth * frac) +
    ramp * sqrt(bytes); between nodes each step of a ring and each level of a tree takes the
    fabric's latency (planner/formulas/collectives.py).
    """

    id: Id
    title: str
    aliases: Names = ()
    scope: Literal["intra_node", "inter_node"]
    # joins the GPUs of a switched domain (NVLink, Infinity Fabric), which may be larger than a node
    spans_nodes: bool = False
    # between nodes: the kind of fabric. A profile that is a kind has no speed: a node's network
    # cards set it, of which `bandwidth` states the slowest
    fabric: Id | None = None
    bandwidth: BytesPerSecond  # one direction; per GPU inside a node, per NIC between nodes
    # inside a node two steps of a ring (there and back); between nodes one step from node to node
    latency: Seconds
    base_latency: Seconds | None = None  # once per call, inside a node
    all_reduce_start: Seconds | None = (
        None  # more per call of this operation: what a library sets up before its first message
    )
    reduce_scatter_start: Seconds | None = None
    ramp: Annotated[
        Sourced, Quantity("1", exclusive=False)
    ]  # s per sqrt(B), protocol changes at middle sizes
    all_reduce_frac: Efficiency
    all_gather_frac: Efficiency
    reduce_scatter_frac: Efficiency
    send_recv_frac: Efficiency
    two_rank_frac: Efficiency | None = None  # share of the above that two ranks reach (fewer paths)
    mesh: Fraction | None = (
        # without a switch k of N GPUs use ((k-1)/(N-1))^mesh of it; 1 = every pair has its own link
        None
    )
    mesh_ranks: int | None = Field(
        default=None, ge=2, le=1_000_000
    )  # GPUs that such links join in the usual server
    switch_all_reduce_frac: Efficiency | None = (
        None  # in-switch reduction (NVLS), over the wire rate
    )
    switch_latency: Seconds | None = None  # what a call in the switch takes on top of base_latency
    switch_minimum_ranks: int | None = Field(default=None, ge=2, le=1_000_000)
    socket_bandwidth: BytesPerSecond | None = (
        None  # TCP: what the socket threads of one GPU move, one direction
    )
    peer_to_peer: bool = True  # False: copies pass through host memory
    host_bandwidth: BytesPerSecond | None = (
        None  # PCIe: what the bridges carry for all GPUs of the host together, one direction
    )

    @property
    def takes_speed_of_cards(self) -> bool:
        """Whether the name says what kind of fabric it is and not how fast."""
        return self.fabric == self.id


class StorageSpec(Spec):
    """A place for checkpoints: what it writes per node of the job, or for the whole job; what it
    reads, where that is known."""

    id: Id
    title: str
    per_node: BytesPerSecond | None = None
    whole: BytesPerSecond | None = None
    read_per_node: BytesPerSecond | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.per_node is None) == (self.whole is None):
            raise ValueError(f"storage {self.id} needs per_node or whole, not both")
        return self

    def bytes_per_s(self, nodes: int) -> float:
        """Write bandwidth for a job on this many nodes."""
        return (
            float(self.per_node) * nodes if self.per_node is not None else float(self.whole or 0.0)
        )
