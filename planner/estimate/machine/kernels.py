"""Numbers of kernels: rates of the GPU, and memory traffic of its kernels under this stack."""

from __future__ import annotations

from typing import Any

from planner.estimate.machine.attention import attention_numbers
from planner.estimate.machine.clock import recipe_frac, sustained_clock
from planner.estimate.state_types import moment_type_bytes, state_of
from planner.formulas import casts
from planner.formulas.optimizers import OPTIMIZERS, TYPE_BYTES, update_traffic_bytes
from planner.formulas.params import stream_of
from planner.ledger import Sourced
from planner.specs.adapters import adapts_experts
from planner.specs.base import PlanError
from planner.specs.plan import Plan

_CAST_SOURCE = (
    "own count of the passes of Transformer Engine's casts, per element of an input or an output's"
    " gradient; weights, which are cast once per step, apart"
)
_NO_CACHE = Sourced(0.0, "B", "assumed", "no cache is known of this GPU")
_CAST_LIMIT = Sourced(
    2e13,
    "B/s",
    "assumed",
    "vectorised kernels, as XLA's; Transformer Engine's casts move 4.7 to 5.5 TB/s on B300 and 4.3"
    " on H200 NVL, docs/examples/gemm_profiling at d0067d0d: with and without quantisation",
    "2026-11",
)

# bytes moved per element, forward and backward, in 16 bit: counted from what the kernels read and
# write. Torch's LayerNorm moves the fused kernel's bytes at 55 % forward and 26 % backward of the
# A100's bandwidth (measured), here as the bytes that take as long at the usual share; an RMSNorm of
# torch operators is a chain of fp32 kernels (measured 17 and 5 %: 18 and 92 bytes).
_NORM = {"fused": (4.0, 8.0), "torch LayerNorm": (6.0, 18.0), "torch RMSNorm": (34.0, 80.0)}
_NORM_SOURCE = {
    "fused": "one kernel each way, gradients of scale and shift reduced apart; own count",
    "torch LayerNorm": (
        "kernel of torch.nn.LayerNorm: 55 % and 26 % of the A100's bandwidth, measured"
    ),
    "torch RMSNorm": (
        "cast, square, mean, scale, cast and multiplication as operators of their own; own count"
        " (17 % and 5 % of HBM, measured on A100)"
    ),
}
# the same for RoPE and for the gate of an MLP, as one kernel and as torch operators
_ROTARY = {True: (4.0, 4.0), False: (20.0, 30.0)}
_ROTARY_SOURCE = (
    "one kernel each way, or multiplications, sign, concatenation and sum as torch operators; own"
    " count"
)
_GATE = {True: (6.0, 10.0), False: (10.0, 22.0)}
_GATE_SOURCE = (
    "one kernel each way, or activation, multiplication and joining of gradients as torch"
    " operators; own count"
)

# share of memory bandwidth that elementwise kernels reach where the memory is slow
_ELEMENTWISE = Sourced(
    0.83,
    "1",
    "measured",
    "best of large bandwidth-bound kernels on A100: residual .83, fused softmax .82/.84 of HBM",
    "2026-11",
)
# long copies and sums over whole weight tensors: 1.78 of 2.04 TB/s on A100, 3.08 of 3.35 on H100,
# 4.29 of 4.8 on H200, 6.86 of 8 on B200
_STREAM = Sourced(
    0.88,
    "1",
    "measured",
    "achieved over vendor memory bandwidth, mean of A100, H100, H200 and B200 (.87, .92, .89, .86)",
    "2026-11",
)

# passes over gradients: unscaling (two), their norm, zeroing, and the update itself
_PASSES = 5.0
_OPTIMIZER_SOURCE = (
    "own count: read and write of gradient, master, moments, buffers and parameter, with unscaling,"
    " norm and zeroing"
)

# operators of a captured iteration are replayed by the GPU itself
_CAPTURED_LAUNCH = Sourced(
    2e-6, "s", "assumed", "replay of a CUDA graph: a few microseconds per node at most", "2026-11"
)
# code that torch.compile generates calls its kernels one after the other, without dispatcher,
# modules and autograd
_COMPILED_LAUNCH = Sourced(
    10e-6, "s", "assumed", "wrapper code of inductor: some ten microseconds per kernel", "2026-11"
)
# generated kernels are vectorised as XLA's are (stacks maxtext, paxml): torch's own operators keep
# fewer bytes in flight
_COMPILED_LIMIT = Sourced(
    2e13, "B/s", "assumed", "vectorised generated kernels, as XLA's; see stack maxtext", "2026-11"
)
# of dense models on Blackwell, in every stack: threads keep twice the bytes in flight. Models with
# experts stay at the stack's limit, which stands for kernels of routing that no count has
_BLACKWELL_LIMIT = Sourced(
    8e12,
    "B/s",
    "assumed",
    "a thread of sm_100 loads 256 bits at once, 128 before (llvm/llvm-project, NVPTX tests of"
    " load-store-vectors-256); runs of dense models of seven suites want 6 to 14 TB/s,"
    " docs/log/rates",
    "2026-11",
)
# of what routing moves: tokens are gathered and scattered once, activation and casts stay in
# registers
_FUSED_EXPERTS = 0.4
_EXPERTS_SOURCE = (
    "share of activation, routing and cast traffic of experts that is left where a grouped GEMM"
    " does its own activation and quantisation; own count"
)


def kernel_numbers(plan: Plan) -> dict[str, Any]:
    """Numbers by field of Machine. Raises PlanError where the GPU does not have the precision."""
    gpu = plan.cluster.gpu
    curve, fusion, recipe = gpu.kernels, plan.stack.fusion, plan.recipe
    rate = gpu.rate(plan.precision)
    if rate is None:
        raise PlanError("--precision", plan.precision, gpu.lacks(plan.precision))
    wide = (gpu.dense.bf16 or gpu.dense.fp16 or gpu.dense.fp32) if recipe else rate
    fused = fused_experts(plan)
    return {
        "dense_rate": rate,
        "wide_rate": wide,
        "vector_rate": gpu.dense.fp32,
        "sustained_clock": sustained_clock(plan),
        "recipe_frac": recipe_frac(plan, float(rate), float(wide))
        if recipe
        else Sourced(1.0, "1", "assumed", "operands of 16 bit and more"),
        "cast_bytes": Sourced(_cast_bytes(plan), "B", "assumed", _CAST_SOURCE),
        "cast_limit": _CAST_LIMIT,
        "compute_units": float(gpu.compute_units),
        "gemm_efficiency": curve.gemm_efficiency,
        "gemm_tile_exponent": curve.gemm_tile_exponent,
        "gemm_tile_overhead": curve.gemm_tile_overhead,
        "gemm_wave_softness": curve.gemm_wave_softness,
        "gemm_launch": curve.gemm_launch,
        "gemm_memory_frac": curve.memory_frac,
        "kernel_gap": curve.kernel_gap,
        "memory_bandwidth": gpu.memory_bandwidth,
        "cache_bytes": gpu.cache.size if gpu.cache else _NO_CACHE,
        "cache_bandwidth": gpu.cache.bandwidth if gpu.cache else gpu.memory_bandwidth,
        "elementwise_frac": _ELEMENTWISE,
        "elementwise_limit": _limit(plan),
        "stream_frac": _STREAM,
        **_moved_bytes(plan),
        **attention_numbers(plan),
        "cross_entropy_bytes": fusion.cross_entropy_bytes,
        "weight_bytes_moved": fusion.weight_bytes_moved,
        "operator_launch": _operator_launch(plan),
        "captured_launch": _CAPTURED_LAUNCH,
        "expert_traffic": Sourced(
            _FUSED_EXPERTS if fused else 1.0, "1", "assumed", _EXPERTS_SOURCE
        ),
        "optimizer_bytes": Sourced(optimizer_traffic(plan), "1", "assumed", _OPTIMIZER_SOURCE),
        **_operator_times(plan),
    }


def optimizer_traffic(plan: Plan) -> float:
    """Bytes moved per parameter and step by the update, given the types of all states; work on
    whole matrices is counted separately."""
    training, state = plan.training, state_of(plan)
    optimizer, mixed = OPTIMIZERS[training.optimizer], training.mixed_precision
    wide = TYPE_BYTES["fp32"]
    weight = (state.master or state.parameter) if mixed else wide
    moments = optimizer.moment_bytes(moment_type_bytes(plan))
    return float(
        update_traffic_bytes(
            state.gradient if mixed else wide,
            weight if optimizer.work else weight + moments + state.optimizer_temporary,
            state.parameter if mixed and state.master else 0.0,
            plan.stated(lambda each: each.gradient_passes()) or _PASSES,
        )
    )


def _cast_bytes(plan: Plan) -> float:
    """Bytes moved per element to make the copies that GEMMs read; nothing where they read 16
    bit."""
    recipe = plan.recipe
    if recipe is None:
        return 0.0
    each = casts.operand_bytes(recipe.element, recipe.scale, recipe.block)
    # the second copy is for the weight gradient
    frozen = plan.training.adapter is not None
    copies = 1.0 if frozen else recipe.copies(plan.cluster.gpu.architecture)
    return float(casts.cast_bytes(1.0, recipe.reads, copies, each))


def _operator_launch(plan: Plan) -> Sourced:
    """CPU time per operator: of the stack, of compiled code, or of an iteration that is captured
    as a whole."""
    launch = plan.stack.launch.operator
    if captures_all(plan):
        return _CAPTURED_LAUNCH
    return min(launch, _COMPILED_LAUNCH, key=float) if plan.training.compile else launch


def captures_all(plan: Plan) -> bool:
    """Whether whole iterations are CUDA graphs: by the request, else by the stack's recipes."""
    if (graphs := plan.stated(lambda each: each.replayed())) is not None:
        return graphs.iteration
    by_recipe = plan.training.expert_kernels is None and _fused_by_stack(plan)
    return by_recipe or plan.cluster.gpu.architecture in plan.stack.launch.captured


def _limit(plan: Plan) -> Sourced:
    """Throughput of elementwise kernels with unlimited memory bandwidth."""
    limits = [plan.stack.fusion.elementwise_limit]
    if plan.cluster.gpu.architecture == "blackwell" and plan.model.routed is None:
        limits.append(_BLACKWELL_LIMIT)
    if plan.training.compile:
        limits.append(_COMPILED_LIMIT)
    return max(limits, key=float)


def fused_experts(plan: Plan) -> bool:
    """Whether experts are one grouped GEMM that has their activation, bias and quantisation."""
    kernels = plan.training.expert_kernels
    return kernels == "fused" if kernels else _fused_by_stack(plan)


def _fused_by_stack(plan: Plan) -> bool:
    """Whether the stack fuses them by default: the kernels exist for gated experts in 8 bit
    (fuse_grouped_mlp_ops of Transformer Engine 2.14), and recipes use them there."""
    moe = plan.model.routed
    return (
        moe is not None
        and moe.gated
        and plan.recipe is not None
        and plan.recipe.element == 1.0
        and plan.cluster.gpu.architecture in plan.stack.fusion.fused_experts
    )


def loops_experts(plan: Plan) -> bool:
    """Whether a rank computes its experts sequentially."""
    kernels, experts = plan.training.expert_kernels, plan.stack.experts
    usual, grouped, adapter = experts.kernels, experts.grouped_adapters, plan.training.adapter
    if adapter is not None and adapts_experts(plan.model.routed, stream_of(plan.model), adapter):
        here = grouped is None or plan.cluster.gpu.architecture in grouped
        usual = usual if here else "loop"
    return (kernels or usual) == "loop" and not fused_experts(plan)


def split_experts(plan: Plan) -> bool:
    """Whether biases and clamps of experts are torch operators beside their GEMMs: fused and
    compiled kernels have them."""
    return not (fused_experts(plan) or plan.training.compile)


def _moved_bytes(plan: Plan) -> dict[str, Sourced]:
    """Bytes that norms, RoPE and gates move per element."""
    norm = _norm_kernel(plan)
    counted = {
        "norm": (_NORM[norm], _NORM_SOURCE[norm]),
        "rotary": (_ROTARY[plan.fused_rotary], _ROTARY_SOURCE),
        "gate": (_GATE[plan.fused_gate], _GATE_SOURCE),
    }
    return {
        f"{name}_{way}": Sourced(moved, "B", "assumed", source)
        for name, (both, source) in counted.items()
        for way, moved in zip(("forward", "backward"), both, strict=True)
    }


def _norm_kernel(plan: Plan) -> str:
    """LayerNorm is one kernel everywhere, but torch's own is a slow one."""
    if plan.model.norm != "layernorm":
        return "fused" if plan.fused_norm else "torch RMSNorm"
    chosen = plan.training.fused_norm
    fused = plan.stack.fusion.fused_layernorm if chosen is None else chosen
    return "fused" if fused or plan.training.compile else "torch LayerNorm"


def _operator_times(plan: Plan) -> dict[str, Any]:
    """Measured times of this model's operators, by field of Machine; empty if the precision was not
    measured."""
    model, times = plan.model, plan.cluster.gpu.operators.get(plan.training.precision)
    if times is None:
        return {}
    kinds = {
        "norm": "layernorm" if model.norm == "layernorm" else "rmsnorm",
        "residual": "residual",
        "activation": "gated" if model.gated else "plain",
        "rotary": "rotary" if model.positions == "rotary" else "copies",
    }
    fields = {
        f"{name}_{way}_s": getattr(times, f"{kind}_{way}")
        for name, kind in kinds.items()
        for way in ("forward", "backward")
    }
    fields |= {f"{name}_s": getattr(times, name) for name in ("loss", "embedding", "table")}
    if _as_measured(plan):
        fields["optimizer_s"] = times.optimizer
    return {name: seconds for name, seconds in fields.items() if seconds is not None}


def _as_measured(plan: Plan) -> bool:
    """Whether the update is the one that calibrations time: Adam with states as the stack has
    them."""
    training = plan.training
    types = (training.moments_precision, training.master_precision, training.gradient_precision)
    return training.optimizer == "adam" and not any(types)
