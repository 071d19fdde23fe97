"""The numbers an estimate rests on: one flat record of a plan's hardware, links and software, each with its source.

Fields may be arrays of one value per row, which is how sensitivities are found: one row per number, each with one number moved.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.ledger import Array, Sourced
from planner.specs.base import PlanError
from planner.specs.hardware import PRECISIONS
from planner.specs.plan import Plan

# share of the FlashAttention-2 rate of the GPU profile: FA1, Dao 2023 figure 4 (about half); FA3 648 against 370 TFLOP/s
# on H100 at head width 128, Shah et al. 2024 (arXiv 2407.08608)
_ATTENTION_VERSION = {"flash1": 0.8, "flash2": 1.0, "flash3": 1.6, "fused_softmax": 1.0, "eager": 1.0}

# share of the fp8 matrix rate that a scaling recipe leaves: rowwise scales break the epilogue, refit of torchtitan's runs
_FP8_RECIPE = {"rowwise": 0.55}


def _assumed(value: float, unit: str, source: str) -> Sourced:
    return Sourced(value, unit, "assumed", source)


@dataclass(frozen=True)
class Machine:
    """Numbers of one plan in base units; see hardware and stack profiles for what each means."""

    # kernels
    dense_rate: Array  # FLOP/s of matrix products in the training precision
    wide_rate: Array  # FLOP/s of what stays in 16 (or 32) bit beside fp8 products
    sustained_clock: Array
    fp8_frac: Array
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
    eager_norm_extra: Array
    attention_forward: Array
    attention_backward: Array
    attention_version: Array
    operator_launch: Array
    step_overhead: Array
    # links
    intra_bandwidth: Array
    intra_latency: Array
    intra_ramp: Array
    intra_all_reduce: Array
    intra_all_gather: Array
    intra_reduce_scatter: Array
    intra_send: Array
    intra_two_rank: Array
    intra_switch: Array  # in-switch all-reduce, share of the wire rate
    intra_switch_ranks: Array  # from so many ranks on; infinite where the link has no switch reduction
    nic_per_gpu: Array
    inter_hop: Array
    inter_all_reduce: Array
    inter_all_gather: Array
    inter_reduce_scatter: Array
    inter_send: Array
    network_frac: Array
    host_bandwidth: Array
    # behaviour
    slowdown: Array
    straggler_sigma: Array
    optimizer_bytes: Array
    cpu_adam: Array
    # mechanisms that no number can switch off, by name (SWITCHES): only ablations name any
    without: frozenset[str] = frozenset()

    def names(self) -> list[str]:
        """The numbers: every field but the switches."""
        return [field.name for field in dataclasses.fields(self) if field.name != "without"]


# what `Machine.without` may name
SWITCHES = ("alignment", "attention_shape", "fp8_casts", "tree", "expert_operators", "shared_copies")


def machine(plan: Plan) -> Machine:
    """Collect the numbers of a plan. The precision must be one the GPU has (rules check it before)."""
    gpu, cluster, stack, training = plan.cluster.gpu, plan.cluster, plan.stack, plan.training
    curve, intra, inter = gpu.kernels, cluster.intra_node, cluster.inter_node
    precision = training.precision
    rate = gpu.rate(precision)
    if rate is None:
        has = ", ".join(p for p in PRECISIONS if gpu.rate(p) is not None)
        raise PlanError("--precision", precision, f"{gpu.title} does not have it; it has {has}")
    wide = rate if precision != "fp8" else (gpu.dense.bf16 or gpu.dense.fp16 or gpu.dense.fp32)
    attention = training.attention or stack.fusion.attention
    nic = cluster.nic_bandwidth
    per_gpu = Sourced(
        nic * cluster.nics_per_node / min(cluster.gpus_per_node, cluster.gpus), "B/s", nic.kind, nic.source, nic.date
    )
    bandwidth = gpu.links.get(intra.id, intra.bandwidth)
    return Machine(
        dense_rate=rate,
        wide_rate=wide,
        sustained_clock=curve.sustained_clock,
        fp8_frac=_assumed(
            _FP8_RECIPE.get(training.fp8_recipe or "", 1.0) if precision == "fp8" else 1.0,
            "1",
            "share of the fp8 rate that the scaling recipe leaves; casts are counted apart",
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
        eager_norm_extra=_assumed(
            0.0 if _fused_norm(plan) else 1.0, "1", "whether the norm is several kernels (measured 17/5 % of HBM on A100)"
        ),
        attention_forward=curve.attention_forward,
        attention_backward=curve.attention_backward,
        attention_version=_assumed(
            _attention_version(attention, gpu.architecture), "1", "FlashAttention over version 2: arXiv 2307.08691, 2407.08608"
        ),
        operator_launch=stack.launch.operator,
        step_overhead=stack.launch.step_overhead,
        intra_bandwidth=bandwidth,
        intra_latency=intra.latency,
        intra_ramp=intra.ramp,
        intra_all_reduce=intra.all_reduce_frac,
        intra_all_gather=intra.all_gather_frac,
        intra_reduce_scatter=intra.reduce_scatter_frac,
        intra_send=intra.send_recv_frac,
        intra_two_rank=intra.two_rank_frac or _assumed(1.0, "1", "two ranks use all paths"),
        intra_switch=intra.switch_all_reduce_frac or intra.all_reduce_frac,
        intra_switch_ranks=float(intra.switch_minimum_ranks or 1e9),
        nic_per_gpu=per_gpu,
        inter_hop=inter.latency,
        inter_all_reduce=inter.all_reduce_frac,
        inter_all_gather=inter.all_gather_frac,
        inter_reduce_scatter=inter.reduce_scatter_frac,
        inter_send=inter.send_recv_frac,
        network_frac=stack.network_frac,
        host_bandwidth=_host_bandwidth(plan),
        slowdown=stack.overlap.slowdown if training.overlap is not False else _assumed(0.0, "1", "nothing overlaps"),
        straggler_sigma=_assumed(0.004, "1", "relative jitter of one GPU's step; not identifiable from the runs"),
        optimizer_bytes=_assumed(_OPTIMIZER_TRAFFIC[training.optimizer], "1", "own count: read and write of gradient, "
                                 "master, moments and parameter, with unscaling, norm and zeroing"),
        cpu_adam=stack.cpu_adam,
    )  # fmt: skip


# bytes that one optimizer step moves per parameter on the GPU (own count, mixed precision; see docs/models.md)
_OPTIMIZER_TRAFFIC = {"adam": 46.0, "adam8bit": 34.0, "adafactor": 32.0, "sgd": 30.0, "sgd-momentum": 38.0}


def _attention_version(attention: str, architecture: str) -> float:
    """FlashAttention-3 and cuDNN's equal need Hopper; elsewhere the profile's own rate is what the newest kernels reach."""
    return _ATTENTION_VERSION[attention] if attention != "flash3" or architecture == "hopper" else 1.0


def _fused_norm(plan: Plan) -> bool:
    """LayerNorm is one kernel everywhere; RMSNorm is several unless the stack or torch.compile fuses it."""
    if plan.model.norm == "layernorm" or plan.training.compile:
        return True
    chosen = plan.training.fused_norm
    return plan.stack.fusion.fused_norm if chosen is None else chosen


def _host_bandwidth(plan: Plan) -> Sourced:
    link = plan.cluster.host_link
    return Sourced(link.bandwidth * link.send_recv_frac, "B/s", link.bandwidth.kind, link.bandwidth.source, link.bandwidth.date)


def moved_one_by_one(base: Machine, step: float) -> tuple[Machine, list[str]]:
    """A machine of n + 1 rows: row 0 unchanged, row i with the i-th number raised by `step` (zeros are left out)."""
    names = [n for n in base.names() if n not in ("compute_units", "intra_switch_ranks") and float(getattr(base, n)) != 0.0]
    columns: dict[str, Any] = {}
    for name in base.names():
        column = np.full(len(names) + 1, float(getattr(base, name)))
        if name in names:
            column[names.index(name) + 1] *= 1 + step
        columns[name] = column
    return Machine(**columns), names
