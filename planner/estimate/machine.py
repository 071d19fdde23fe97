"""The numbers an estimate rests on: one flat record of a plan's hardware, links and software, each
with its source.

Fields may be arrays of one value per row, which is how sensitivities are found: one row per number,
each with one number moved.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.formulas import kernels
from planner.ledger import Array, Sourced
from planner.specs.base import PlanError
from planner.specs.hardware import PRECISIONS, GpuSpec
from planner.specs.plan import Plan

# share of the FlashAttention-2 rate of the GPU profile. FA1: over validated runs, more than the
# half of Dao 2023 figure 4; FA3: 648 against 370 TFLOP/s (1.75) on H100 at head width 128, Shah et
# al. 2024 (arXiv 2407.08608), lowered over validated runs
_ATTENTION_VERSION = {
    "flash1": 0.8,
    "flash2": 1.0,
    "flash3": 1.6,
    "fused_softmax": 1.0,
    "eager": 1.0,
}

# energy of an fp8 operation over that of a 16-bit one: multipliers grow with the square of the
# mantissa (4 against 8 or 11 bits), registers and data paths with its width; the clocks of
# validated fp8 and 16-bit runs on H100 and B200 differ by 1.12 to 1.17
_FP8_ENERGY = 0.35

_CAST = 3.0  # bytes per operand element of an fp8 product, mean over its three products

# share of the fp8 matrix rate that a scaling recipe leaves: rowwise scales break the epilogue,
# refit of torchtitan's runs
_FP8_RECIPE = {"rowwise": 0.55}


def _assumed(value: float, unit: str, source: str) -> Sourced:
    return Sourced(value, unit, "assumed", source)


@dataclass(frozen=True)
class Machine:
    """Numbers of one plan in base units; see hardware and stack profiles for what each means."""

    # kernels
    dense_rate: Array  # FLOP/s of matrix products in the training precision
    wide_rate: Array  # FLOP/s of what stays in 16 (or 32) bit beside fp8 products
    vector_rate: Array  # FLOP/s of fp32 arithmetic outside the tensor cores
    sustained_clock: Array
    fp8_frac: Array
    cast_bytes: Array  # moved per operand element to make its 8-bit copies
    compute_units: Array
    gemm_efficiency: Array
    gemm_tile_exponent: Array
    gemm_tile_overhead: Array
    gemm_wave_softness: Array
    gemm_launch: Array
    gemm_memory_frac: Array
    kernel_gap: Array
    memory_bandwidth: Array
    elementwise_frac: Array
    elementwise_limit: Array
    stream_frac: Array
    norm_forward: Array  # bytes moved per hidden element and norm
    norm_backward: Array
    rotary_forward: Array  # per rotated element
    rotary_backward: Array
    gate_forward: Array  # per element of a gated MLP's inner width
    gate_backward: Array
    attention_forward: Array
    attention_backward: Array
    attention_version: Array
    cross_entropy_bytes: Array
    weight_bytes_moved: Array
    operator_launch: Array
    expert_traffic: Array  # share of the bytes that experts move outside of products
    operators_forward: Array
    operators_backward: Array
    operators_per_collective: Array
    step_overhead: Array
    layer_idle: Array
    # links
    intra_bandwidth: Array
    intra_base: Array  # s per collective call
    intra_latency: Array
    intra_ramp: Array
    intra_mesh: Array  # 0 behind a switch, 1 where every pair of GPUs has a link of its own
    intra_peers: Array  # other GPUs of the node
    intra_host: Array  # B/s of the host's bridges per GPU; no limit where copies do not share them
    intra_all_reduce: Array
    intra_all_gather: Array
    intra_reduce_scatter: Array
    intra_send: Array
    intra_two_rank: Array
    intra_switch: Array  # in-switch all-reduce, share of the wire rate
    intra_switch_setup: Array  # s more per call in the switch
    intra_switch_ranks: (
        Array  # from so many ranks on; infinite where the link has no switch reduction
    )
    nic_per_gpu: Array
    inter_hop: Array
    inter_all_reduce: Array
    inter_all_gather: Array
    inter_reduce_scatter: Array
    inter_send: Array
    inter_socket: (
        Array  # B/s of one GPU's socket threads; no limit where cards read GPU memory themselves
    )
    network_frac: Array
    host_bandwidth: Array
    host_copy_bandwidth: Array  # of one GPU, one direction, while all GPUs of its host copy
    # behaviour
    slowdown: Array
    tensor_hidden: (
        Array  # share of tensor-parallel exchanges under sequence parallelism that products hide
    )
    straggler_sigma: Array
    optimizer_bytes: Array
    cpu_adam: Array
    # measured seconds per element of operators without products (specs.hardware.OperatorTimes); 0:
    # counted in bytes
    norm_forward_s: Array = 0.0
    norm_backward_s: Array = 0.0
    residual_forward_s: Array = 0.0
    residual_backward_s: Array = 0.0
    activation_forward_s: Array = 0.0
    activation_backward_s: Array = 0.0
    rotary_forward_s: Array = 0.0
    rotary_backward_s: Array = 0.0
    loss_s: Array = 0.0
    embedding_s: Array = 0.0
    table_s: Array = 0.0
    optimizer_s: Array = 0.0
    attention_half_sequence: Array = 0.0  # tokens; 0: that of formulas.kernels
    attention_width_exponent: Array = 0.0  # 0: that of formulas.kernels
    # s more per call of the operation inside a node; 0: as the others
    intra_all_reduce_start: Array = 0.0
    intra_reduce_scatter_start: Array = 0.0
    # NVMe drives of the node, each GPU's share; 0: none are used
    nvme_read: Array = 0.0
    nvme_write: Array = 0.0
    # mechanisms that no number can switch off, by name (SWITCHES): only ablations name any
    without: frozenset[str] = frozenset()

    def names(self) -> list[str]:
        """The numbers: every field but the switches."""
        return [field.name for field in dataclasses.fields(self) if field.name != "without"]


# what `Machine.without` may name
SWITCHES = ("alignment", "attention_shape", "tree", "expert_operators", "shared_copies")


def machine(plan: Plan) -> Machine:
    """Collect the numbers of a plan. The precision must be one the GPU has (rules check it
    before)."""
    gpu, cluster, stack, training = plan.cluster.gpu, plan.cluster, plan.stack, plan.training
    curve, intra, inter = gpu.kernels, cluster.intra_node, cluster.inter_node
    precision = training.precision
    rate = gpu.rate(precision)
    if rate is None:
        has = ", ".join(p for p in PRECISIONS if gpu.rate(p) is not None)
        raise PlanError("--precision", precision, f"{gpu.title} does not have it; it has {has}")
    wide = rate if precision != "fp8" else (gpu.dense.bf16 or gpu.dense.fp16 or gpu.dense.fp32)
    attention = plan.attention
    nic = cluster.nic_bandwidth
    per_gpu = Sourced(
        nic * cluster.nics_per_node / cluster.gpus_per_host, "B/s", nic.kind, nic.source, nic.date
    )
    bandwidth = gpu.links.get(intra.id, intra.bandwidth)
    norm = _norm_kernel(plan)
    rotary, gate = (
        training.compile or flag for flag in (stack.fusion.fused_rotary, stack.fusion.fused_gate)
    )
    return Machine(
        dense_rate=rate,
        wide_rate=wide,
        vector_rate=gpu.dense.fp32,
        sustained_clock=sustained_clock(plan),
        fp8_frac=_fp8_frac(plan) if precision == "fp8" else _assumed(1.0, "1", "no fp8"),
        cast_bytes=_assumed(
            _CAST if precision == "fp8" else 0.0,
            "B",
            "casts are fused with the kernel before where there is one, and copied transposed for"
            " the weight gradient; own count",
        ),
        compute_units=float(gpu.compute_units),
        gemm_efficiency=curve.gemm_efficiency,
        gemm_tile_exponent=curve.gemm_tile_exponent,
        gemm_tile_overhead=curve.gemm_tile_overhead,
        gemm_wave_softness=curve.gemm_wave_softness,
        gemm_launch=curve.gemm_launch,
        gemm_memory_frac=curve.memory_frac,
        kernel_gap=curve.kernel_gap,
        memory_bandwidth=gpu.memory_bandwidth,
        elementwise_frac=stack.fusion.elementwise_frac,
        elementwise_limit=stack.fusion.elementwise_limit,
        stream_frac=_STREAM,
        norm_forward=_assumed(_NORM[norm][0], "B", _COUNTED[norm]),
        norm_backward=_assumed(_NORM[norm][1], "B", _COUNTED[norm]),
        rotary_forward=_assumed(_ROTARY[rotary][0], "B", _COUNTED["rotary"]),
        rotary_backward=_assumed(_ROTARY[rotary][1], "B", _COUNTED["rotary"]),
        gate_forward=_assumed(_GATE[gate][0], "B", _COUNTED["gate"]),
        gate_backward=_assumed(_GATE[gate][1], "B", _COUNTED["gate"]),
        attention_forward=curve.attention_forward,
        attention_backward=curve.attention_backward,
        attention_version=_assumed(
            _attention_version(attention, gpu.architecture),
            "1",
            "FlashAttention over version 2: arXiv 2307.08691, 2407.08608",
        ),
        cross_entropy_bytes=stack.fusion.cross_entropy_bytes,
        weight_bytes_moved=stack.fusion.weight_bytes_moved,
        operator_launch=_CAPTURED_LAUNCH if fused_experts(plan) else stack.launch.operator,
        expert_traffic=_assumed(
            _FUSED_EXPERTS if fused_experts(plan) else 1.0,
            "1",
            "share of activation, routing and cast traffic of experts that "
            "is left where a grouped product does its own activation and quantisation; own count",
        ),
        operators_forward=stack.launch.operators_forward,
        operators_backward=stack.launch.operators_backward,
        operators_per_collective=stack.launch.operators_per_collective,
        step_overhead=stack.launch.step_overhead,
        layer_idle=stack.launch.layer_idle,
        intra_bandwidth=bandwidth,
        intra_base=intra.base_latency
        or _assumed(0.0, "s", "no table; the latency of the steps holds it"),
        intra_latency=intra.latency,
        intra_all_reduce_start=intra.all_reduce_start or 0.0,
        intra_reduce_scatter_start=intra.reduce_scatter_start or 0.0,
        intra_ramp=intra.ramp,
        intra_mesh=intra.mesh
        or _assumed(0.0, "1", "a switch or a bus: every group has the whole link"),
        intra_peers=_peers(plan),
        intra_host=_bridge_bandwidth(plan),
        intra_all_reduce=intra.all_reduce_frac,
        intra_all_gather=intra.all_gather_frac,
        intra_reduce_scatter=intra.reduce_scatter_frac,
        intra_send=intra.send_recv_frac,
        intra_two_rank=intra.two_rank_frac or _assumed(1.0, "1", "two ranks use all paths"),
        intra_switch=intra.switch_all_reduce_frac or intra.all_reduce_frac,
        intra_switch_setup=intra.switch_latency
        or _assumed(0.0, "s", "no reduction in a switch, or no table of one"),
        intra_switch_ranks=float(intra.switch_minimum_ranks or 1e9),
        nic_per_gpu=per_gpu,
        inter_hop=inter.latency,
        inter_all_reduce=inter.all_reduce_frac,
        inter_all_gather=inter.all_gather_frac,
        inter_reduce_scatter=inter.reduce_scatter_frac,
        inter_send=inter.send_recv_frac,
        inter_socket=inter.socket_bandwidth
        or _assumed(_NO_LIMIT, "B/s", "cards reach GPU memory themselves, without sockets"),
        network_frac=stack.network_frac,
        host_bandwidth=_host_bandwidth(plan),
        host_copy_bandwidth=_host_copy_bandwidth(plan),
        slowdown=(
            stack.overlap.slowdown
            if training.overlap is not False
            else _assumed(0.0, "1", "nothing overlaps")
        ),
        tensor_hidden=(
            _assumed(
                0.35,
                "1",
                "asynchronous tensor parallelism of torch: products and exchanges in pieces; refit"
                " of torchtitan's runs",
            )
            if training.async_tensor_parallel
            else _tensor_hidden(plan)
        ),
        straggler_sigma=_jitter(plan),
        optimizer_bytes=_assumed(
            _OPTIMIZER_TRAFFIC[training.optimizer],
            "1",
            "own count: read and write of gradient, "
            "master, moments and parameter, with unscaling, norm and zeroing",
        ),
        cpu_adam=stack.cpu_adam,
        attention_half_sequence=curve.attention_half_sequence or 0.0,
        attention_width_exponent=curve.attention_width_exponent or 0.0,
        **_operators(plan),
        **_drives(plan),
    )


def _jitter(plan: Plan) -> Sourced:
    if plan.ranks.jitter_frac is None:
        return _assumed(
            0.004, "1", "relative jitter of one GPU's step; not identifiable from the runs"
        )
    return Sourced(plan.ranks.jitter_frac, "1", "measured", "stated in the request")


def _operators(plan: Plan) -> dict[str, Any]:
    """What was measured of the operators this model runs, by field of Machine; nothing where the
    precision was not measured."""
    model, times = plan.model, plan.cluster.gpu.operators.get(plan.training.precision)
    if times is None:
        return {}
    kinds = {
        "norm": "layernorm" if model.norm == "layernorm" else "rmsnorm",
        "residual": "residual",
        "activation": "gated" if model.mlp == "gated" else "plain",
        "rotary": "rotary" if model.positions == "rotary" else "copies",
    }
    found = {
        f"{name}_{way}_s": getattr(times, f"{kind}_{way}")
        for name, kind in kinds.items()
        for way in ("forward", "backward")
    }
    found |= {f"{name}_s": getattr(times, name) for name in ("loss", "embedding", "table")}
    if plan.training.optimizer == "adam":
        found["optimizer_s"] = times.optimizer
    return {name: seconds for name, seconds in found.items() if seconds is not None}


# long copies and sums over whole weight tensors: 1.78 of 2.04 TB/s on A100, 3.08 of 3.35 on H100,
# 4.29 of 4.8 on H200, 6.86 of 8 on B200
_STREAM = Sourced(
    0.88,
    "1",
    "measured",
    "achieved over vendor memory bandwidth, mean of A100, H100, H200 and B200 (.87, .92, .89, .86)",
    "2026-11",
)

# bytes that one optimizer step moves per parameter on the GPU (own count, mixed precision; see
# docs/models.md)
_OPTIMIZER_TRAFFIC = {
    "adam": 46.0,
    "adam8bit": 34.0,
    "adafactor": 32.0,
    "sgd": 30.0,
    "sgd-momentum": 38.0,
}


def _attention_version(attention: str, architecture: str) -> float:
    """FlashAttention-3 and cuDNN's equal need Hopper; elsewhere the profile's own rate is what the
    newest kernels reach."""
    return (
        _ATTENTION_VERSION[attention] if attention != "flash3" or architecture == "hopper" else 1.0
    )


# bytes moved per element, forward and backward, in 16 bit: counted from what the kernels read and
# write. Torch's LayerNorm moves the fused kernel's bytes at 55 % forward and 26 % backward of the
# A100's bandwidth (measured), here as the bytes that take as long at the usual share; an RMSNorm of
# torch operators is a chain of fp32 kernels (measured 17 and 5 %: 18 and 92 bytes).
_NORM = {"fused": (4.0, 8.0), "torch LayerNorm": (6.0, 18.0), "torch RMSNorm": (34.0, 80.0)}
_ROTARY = {True: (4.0, 4.0), False: (20.0, 24.0)}
_GATE = {True: (6.0, 10.0), False: (10.0, 22.0)}
_COUNTED = {
    "fused": "one kernel each way, gradients of scale and shift reduced apart; own count",
    "torch LayerNorm": (
        "kernel of torch.nn.LayerNorm: 55 % and 26 % of the A100's bandwidth, measured"
    ),
    "torch RMSNorm": (
        "cast, square, mean, scale, cast and product as operators of their own; own count (17 % and"
        " 5 % of HBM, measured on A100)"
    ),
    "rotary": (
        "one kernel each way, or products, sign, concatenation and sum as torch operators; own"
        " count"
    ),
    "gate": (
        "one kernel each way, or activation, product and joining of gradients as torch operators;"
        " own count"
    ),
}


def law_of(gpu: GpuSpec, power_w: float | None = None) -> float | None:
    """Tensor clock that the power law gives a GPU at this power (its board's by default), as a
    share of the full clock.

    None for an architecture whose energy per FLOP is not known.
    """
    energy, rate = kernels.ENERGY_PER_FLOP.get(gpu.architecture), gpu.dense.bf16 or gpu.dense.fp16
    if energy is None or rate is None:
        return None
    power = float(gpu.power) if power_w is None else power_w
    return float(kernels.power_limited_clock_frac(power, float(rate), float(energy)))


def sustained_clock(plan: Plan) -> Sourced:
    """Tensor clock under load: the cluster's own where it is known, else the profile's, lowered by
    a power limit."""
    cluster, gpu = plan.cluster, plan.cluster.gpu
    usual = gpu.kernels.sustained_clock
    if cluster.clock is not None:
        return cluster.clock
    if cluster.power_limit is None:
        return usual
    under, board = law_of(gpu, float(cluster.power_limit)), law_of(gpu)
    if under is None or board is None:
        raise PlanError(
            "--power-limit",
            float(cluster.power_limit),
            f"no energy per FLOP is known for {gpu.title}; measure "
            "the clock under this limit and give it with --clock",
        )
    return Sourced(
        float(usual) * (under / board),
        "1",
        "assumed",
        f"cubic law of power and clock, from the profile's clock at {float(gpu.power):.0f} W",
    )


def _fp8_frac(plan: Plan) -> Sourced:
    """Share of the fp8 rate under the 16-bit clock: what the recipe leaves, times the clock that
    the power saved allows."""
    clock = float(sustained_clock(plan))
    faster = min((0.5 / _FP8_ENERGY) ** (1 / 3), max(1.0 / clock, 1.0))
    recipe = _FP8_RECIPE.get(plan.training.fp8_recipe or "", 1.0)
    return _assumed(
        recipe * faster,
        "1",
        "cubic law of power and clock: an fp8 operation takes a third of the energy "
        "of a 16-bit one, twice as many run at a time; casts are counted apart",
    )


# operators of a captured iteration are replayed by the GPU itself
_CAPTURED_LAUNCH = Sourced(
    2e-6, "s", "assumed", "replay of a CUDA graph: a few microseconds per node at most", "2026-11"
)
# of what routing moves: tokens are gathered and scattered once, activation and casts stay in
# registers
_FUSED_EXPERTS = 0.4


def fused_experts(plan: Plan) -> bool:
    """Whether experts run as one fused grouped product inside a captured iteration."""
    return (
        plan.model.moe is not None
        and plan.cluster.gpu.architecture in plan.stack.fusion.fused_experts
    )


def _tensor_hidden(plan: Plan) -> Sourced:
    """Recipes switch the overlap of tensor-parallel exchanges on from Hopper on."""
    if plan.cluster.gpu.architecture in ("volta", "ampere"):
        return _assumed(0.0, "1", "recipes for this architecture leave the overlap off")
    return plan.stack.overlap.tensor_hidden


def _norm_kernel(plan: Plan) -> str:
    if plan.model.norm != "layernorm":
        return "fused" if _fused_norm(plan) else "torch RMSNorm"
    chosen = plan.training.fused_norm
    fused = plan.stack.fusion.fused_layernorm if chosen is None else chosen
    return "fused" if fused or plan.training.compile else "torch LayerNorm"


def _fused_norm(plan: Plan) -> bool:
    """LayerNorm is one kernel everywhere; RMSNorm is several unless the stack or torch.compile
    fuses it."""
    if plan.model.norm == "layernorm" or plan.training.compile:
        return True
    chosen = plan.training.fused_norm
    return plan.stack.fusion.fused_norm if chosen is None else chosen


_NO_LIMIT = 1e15  # more than any link carries, and a number that a report can print


def _peers(plan: Plan) -> float:
    """Other GPUs that the links of a GPU lead to. A part of a server gets that part's links, not
    all of them."""
    here = plan.cluster.gpus_per_node
    joined = plan.cluster.intra_node.mesh_ranks or here
    return float(max(here if plan.cluster.nodes > 1 else joined, 2) - 1)


def _bridge_bandwidth(plan: Plan) -> Sourced:
    """A GPU's share of the bridges of its host: groups run at the same time, so all GPUs of the
    host share them."""
    whole = plan.cluster.intra_node.host_bandwidth
    if whole is None:
        return _assumed(_NO_LIMIT, "B/s", "copies between GPUs do not pass the bridges of the host")
    return Sourced(whole / plan.cluster.gpus_per_host, "B/s", whole.kind, whole.source, whole.date)


def _host_bandwidth(plan: Plan) -> Sourced:
    link = plan.cluster.host_link
    return Sourced(
        link.bandwidth * link.send_recv_frac,
        "B/s",
        link.bandwidth.kind,
        link.bandwidth.source,
        link.bandwidth.date,
    )


def _host_copy_bandwidth(plan: Plan) -> Sourced:
    """The link to host memory while all GPUs of the host copy: no more than a share of what its
    bridges carry."""
    alone, bridges = _host_bandwidth(plan), plan.cluster.host_link.host_bandwidth
    if bridges is None:
        return alone
    share = bridges / plan.cluster.gpus_per_host
    return (
        alone
        if alone <= share
        else Sourced(share, "B/s", bridges.kind, bridges.source, bridges.date)
    )


def _drives(plan: Plan) -> dict[str, Any]:
    """A GPU's share of the drives of its node, which all GPUs of the node read and write at the
    same time."""
    nvme, sharing = plan.cluster.nvme, plan.cluster.gpus_per_host
    if nvme is None:
        return {}
    whole = {"nvme_read": nvme.read, "nvme_write": nvme.write}
    return {
        name: Sourced(one / sharing, "B/s", one.kind, one.source, one.date)
        for name, one in whole.items()
    }


# numbers of parts, which nobody mismeasures
_COUNTS = ("compute_units", "intra_switch_ranks", "intra_peers")


def moved_one_by_one(base: Machine, step: float, times: int = 1) -> tuple[Machine, list[str]]:
    """A machine of n + 1 rows: row 0 unchanged, row i with the i-th number raised by `step` (zeros
    are left out). All `times`."""
    names = [n for n in base.names() if n not in _COUNTS and float(getattr(base, n)) != 0.0]
    columns: dict[str, Any] = {}
    for name in base.names():
        column = np.full(len(names) + 1, float(getattr(base, name)))
        if name in names:
            column[names.index(name) + 1] *= 1 + step
        columns[name] = np.tile(column, times)
    return Machine(**columns), names
