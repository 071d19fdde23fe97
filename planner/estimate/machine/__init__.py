"""The numbers an estimate rests on: one flat record of a plan's hardware, links and stack, each
with its source.

Fields may be arrays of one value per row, which is how sensitivities are found: one row per number,
each with one number moved.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.estimate.machine.host import staged_bandwidth, update_bandwidth
from planner.estimate.machine.kernels import kernel_numbers
from planner.estimate.machine.links import link_numbers
from planner.ledger import Array, Sourced
from planner.specs.plan import Plan

_JITTER = Sourced(
    0.004, "1", "assumed", "relative jitter of one GPU's step; not identifiable from the runs"
)
_NO_OVERLAP = Sourced(0.0, "1", "assumed", "nothing overlaps")
_OVERLAP_OFF = Sourced(0.0, "1", "assumed", "recipes for this architecture leave the overlap off")


@dataclass(frozen=True)
class Machine:
    """Numbers of one plan in base units; hardware and stack profiles explain each."""

    # kernels
    dense_rate: Array  # FLOP/s of GEMMs in the training precision
    wide_rate: Array  # FLOP/s of what stays in 16 (or 32) bit beside GEMMs of 8 or 4 bit
    vector_rate: Array  # FLOP/s of fp32 arithmetic outside the tensor cores
    sustained_clock: Array
    recipe_frac: Array  # share of dense_rate that 8 or 4 bit reach under the 16-bit clock
    cast_bytes: Array  # moved per operand element to make its copies of 8 or 4 bit
    cast_limit: Array  # B/s of casts on a memory of unlimited bandwidth
    compute_units: Array
    gemm_efficiency: Array
    gemm_tile_exponent: Array
    gemm_tile_overhead: Array
    gemm_wave_softness: Array
    gemm_launch: Array
    gemm_memory_frac: Array
    kernel_gap: Array
    memory_bandwidth: Array
    cache_bytes: Array  # of the last cache; 0 where none is known
    cache_bandwidth: Array
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
    attention_version_forward: Array  # the kernel over the profile's rate
    attention_version_backward: Array
    cross_entropy_bytes: Array
    weight_bytes_moved: Array
    operator_launch: Array
    captured_launch: Array  # of an operator inside a CUDA graph
    expert_traffic: Array  # share of the bytes that experts move outside of GEMMs
    operators_forward: Array
    operators_backward: Array
    operators_per_collective: Array
    step_overhead: Array
    layer_idle: Array
    adapter_idle: Array
    token_idle: Array
    tensor_idle: Array
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
    intra_switch_ranks: Array  # from this many ranks on; infinite without reduction in a switch
    nic_per_gpu: Array
    inter_hop: Array
    inter_tier: Array  # s more of a step from island to island
    oversubscription: Array  # of the links between islands
    inter_all_reduce: Array
    inter_all_gather: Array
    inter_reduce_scatter: Array
    inter_send: Array
    inter_socket: Array  # B/s of one GPU's socket threads; no limit where cards read GPU memory
    network_frac: Array
    host_bandwidth: Array
    host_copy_bandwidth: Array  # of one GPU, one direction, while all GPUs of its host copy
    # behaviour
    slowdown: Array
    tensor_hidden: Array  # share of collectives under sequence parallelism that GEMMs hide
    straggler_sigma: Array
    optimizer_bytes: Array
    host_update: Array  # B/s that an update on the CPU moves in host memory, for all of its ranks
    host_staged: Array  # B/s of a copy from pageable host memory to one GPU
    # measured seconds per element of operators without GEMMs (specs.hardware.OperatorTimes); 0:
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
    attention_half_forward: Array = 0.0  # tokens; 0: the default of formulas.kernels
    attention_half_backward: Array = 0.0
    attention_width_exponent: Array = 0.0  # 0: the default of formulas.kernels
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


# of a decoder layer with fused kernels
OPERATORS_FORWARD, OPERATORS_BACKWARD = (
    Sourced(count, "1", "assumed", "kernels of one layer, own count", "2026-11")
    for count in (30.0, 39.0)
)
# what `Machine.without` may name
SWITCHES = (
    "alignment",
    "attention_shape",
    "tree",
    "expert_operators",
    "expert_chains",
    "split_operators",
    "shared_copies",
    "token_weights",
    "unpacking",
)


def machine(plan: Plan) -> Machine:
    """Collect the numbers of a plan. Raises PlanError where its GPU does not have the precision."""
    stack = plan.stack
    base = Machine(
        **kernel_numbers(plan),
        **link_numbers(plan),
        operators_forward=OPERATORS_FORWARD,
        operators_backward=OPERATORS_BACKWARD,
        operators_per_collective=stack.launch.operators_per_collective,
        step_overhead=stack.launch.step_overhead,
        layer_idle=stack.launch.layer_idle,
        adapter_idle=stack.launch.adapter_idle,
        token_idle=stack.launch.token_idle,
        tensor_idle=stack.launch.tensor_idle,
        slowdown=_NO_OVERLAP if plan.training.overlap is False else stack.overlap.slowdown,
        tensor_hidden=_tensor_hidden(plan),
        straggler_sigma=_jitter(plan),
        host_update=update_bandwidth(plan),
        host_staged=staged_bandwidth(plan),
    )
    changed: dict[str, Any] = {}
    for mechanism in plan.mechanisms:
        changed |= mechanism.numbers(plan)
    return replace(base, **changed) if changed else base


def _jitter(plan: Plan) -> Sourced:
    if plan.ranks.jitter_frac is None:
        return _JITTER
    return Sourced(plan.ranks.jitter_frac, "1", "measured", "stated in the request")


def _tensor_hidden(plan: Plan) -> Sourced:
    """Recipes switch the overlap of tensor-parallel collectives on from Hopper on."""
    if plan.training.overlap is False:
        return _NO_OVERLAP
    if plan.cluster.gpu.architecture in ("volta", "ampere"):
        return _OVERLAP_OFF
    return plan.stack.overlap.tensor_hidden


# counts, which are known exactly: left out of the sensitivities
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
