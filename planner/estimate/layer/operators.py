"""Operators bound by memory bandwidth: norms, residual adds, activation, RoPE, routing of tokens.

Bytes are counted from the tensors each kernel reads and writes, for 16-bit elements; fused Megatron
kernels, Korthikanti et al. 2022 (arXiv 2205.05198) section 4. Bytes of norm, RoPE and gate depend
on the stack: see estimate.machine.kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np

from planner.estimate.layer import dispatch, mixers
from planner.estimate.layer.gemm import Gemm
from planner.estimate.layer.shape import BothWays, LayerShape
from planner.estimate.machine import Machine
from planner.estimate.machine.kernels import split_experts
from planner.formulas import kernels
from planner.formulas.params import stream_of
from planner.ledger import Array, Ledger
from planner.specs.layers import Mix
from planner.specs.model import ModelSpec
from planner.specs.parts import Attended, Attention, Latent, Mlp, Moe, Part, Traced
from planner.specs.parts.base import Moved
from planner.specs.plan import Plan
from planner.specs.polynomial import Polynomial

_COUNTED_ELEMENT = 2.0  # bytes of the elements for which the bytes below are counted

# per hidden element of a residual add: two inputs and a sum; the two branches' gradients are added
# on the way back
_ADD = BothWays(6.0, 6.0)
_BIAS_DROPOUT_ADD = BothWays(7.0, 11.0)
NORM_KERNELS_BACK = 2.0  # gradients of the input, and of scale and shift
_GELU = BothWays(4.0, 6.0)  # per MLP element
_ACTIVATION_KERNELS_BACK = 2.0  # of activation and gate; forward one per input GEMM
# per query, key and value element: laid out for the attention kernel, their gradients gathered
# again
_QKV_COPIES = BothWays(4.0, 4.0)
_BIAS_GRADIENT = 2.0  # per element: the output's gradient is read once more and summed over tokens
_BIAS_KERNELS = 2.0  # of the QKV projection, and of the MLP; own count
# per routed copy and hidden element: written once for its expert and read once on the way back;
# backward its expert's output again, for the gradient of its weight
_PERMUTE = BothWays(4.0, 6.0)
_ONE_OF_COPIES = 4.0  # the token itself, read to be copied and written as their weighted sum
# softmax and top-k of the router, permutation, activation and scaling; own count
_EXPERT_KERNELS = BothWays(8.0, 10.0)
# bytes per routed copy and hidden element of what torch operators do of the bias of experts' second
# GEMM, expert by expert: it is scaled by the token's weight and added, and the experts' tokens are
# joined (TEGroupedMLP._apply_bias of Megatron-LM, experts.py of 0.15 to 0.19). Weights in 16 bit,
# and in fp32, as the buffered dispatchers send them: sums and what is joined are in fp32 then
_EXPERT_BIAS = BothWays(12.0, 16.0)
_EXPERT_BIAS_FP32 = BothWays(28.0, 40.0)
# per width of an expert: up and gate are clamped apart and joined; backward masks, gradients
# chosen by them, and these joined (fused_bias_geglu.py, ibid.)
_CLAMPED = BothWays(16.0, 30.0)


def stream_s(plan: Plan, m: Machine, moved_bytes: Array, launches: float) -> Array:
    """Seconds of bandwidth-bound kernels whose bytes are counted for 16-bit elements."""
    return moved_s(m, moved_bytes * plan.training.element_bytes / _COUNTED_ELEMENT, launches)


def moved_s(m: Machine, moved_bytes: Array, launches: float) -> Array:
    """Seconds of bandwidth-bound kernels that move these bytes, in the cache where they fit."""
    bandwidth = kernels.cached_bytes_per_s(
        moved_bytes / np.maximum(launches, 1.0),
        cache_bytes=m.cache_bytes,
        cache_bytes_per_s=m.cache_bandwidth,
        memory_bytes_per_s=m.memory_bandwidth,
    )
    return kernels.elementwise_s(
        moved_bytes,
        launches,
        memory_bytes_per_s=bandwidth,
        elementwise_frac=m.elementwise_frac,
        gap_s=m.kernel_gap,
        limit_bytes_per_s=m.elementwise_limit,
    )


def copy_s(m: Machine, moved_bytes: Array) -> Array:
    """Seconds of kernels over whole weights or logits: tensors long enough for the bandwidth that a
    copy reaches."""
    return kernels.elementwise_s(
        moved_bytes,
        0.0,
        memory_bytes_per_s=m.memory_bandwidth,
        elementwise_frac=m.stream_frac,
        gap_s=m.kernel_gap,
    )


def measured_s(
    m: Machine, elements: Array, seconds_each: Array, launches: float, counted_s: Array
) -> Array:
    """Measured time on this device in place of the computed one, if available."""
    if not np.any(np.asarray(seconds_each) > 0):
        return counted_s
    return kernels.measured_operator_s(
        elements, launches, seconds_per_element=seconds_each, gap_s=m.kernel_gap
    )


def operator_s(
    plan: Plan, m: Machine, elements: Array, bytes_each: Array, seconds_each: Array, launches: float
) -> Array:
    """Seconds of bandwidth-bound kernels over `elements`: measured, or else counted in bytes."""
    counted_s = stream_s(plan, m, elements * bytes_each, launches)
    return measured_s(m, elements, seconds_each, launches, counted_s)


def memory_bound_s(shape: LayerShape, m: Machine) -> BothWays[Ledger]:
    """Seconds of each operator of a mean layer."""
    plan, model, mix = shape.plan, shape.plan.model, shape.mix
    h = float(model.hidden)
    operator = functools.partial(operator_s, plan, m)
    hidden, norms = shape.local_tokens * h, mix.norms
    adds = residual_adds(mix)
    parts = [part for part, _ in mix.parts]
    bias_qkv = any(isinstance(part, Attention) and part.bias_qkv for part in parts)
    bias_mlp = any(isinstance(part, Mlp | Moe) and part.bias for part in parts)
    add = _BIAS_DROPOUT_ADD if model.dropout or bias_mlp else _ADD
    wide = stream_ratio(plan)
    normed = wide if plan.fused_norm else 1.0  # one of several operators casts what is narrow
    back = NORM_KERNELS_BACK * norms
    forward: Ledger = {
        "norm": operator(normed * hidden * norms, m.norm_forward, m.norm_forward_s, norms),
        "residual": operator(wide * hidden * adds, add.forward, m.residual_forward_s, adds),
    }
    backward: Ledger = {
        "norm": operator(normed * hidden * norms, m.norm_backward, m.norm_backward_s, back),
        "residual": operator(wide * hidden * adds, add.backward, m.residual_backward_s, adds),
    }
    for part, count in mix.parts:
        share = count / mix.layers
        for name, seconds in _of_part(shape, m, part).items():
            forward[name] = forward.get(name, 0.0) + share * seconds.forward
            backward[name] = backward.get(name, 0.0) + share * seconds.backward
    forward, backward = _with_rotary(shape, m, forward, backward)
    biased = sum(_biased(shape, part) * (count / mix.layers) for part, count in mix.parts)
    if np.any(biased > 0):
        launches = _BIAS_KERNELS * (bias_qkv + bias_mlp)
        backward["bias"] = stream_s(plan, m, _BIAS_GRADIENT * biased, launches)
    return BothWays(forward, backward)


def stream_ratio(plan: Plan) -> float:
    """Bytes per element of the residual stream over bytes per element of GEMM operands."""
    return plan.stream_bytes / plan.training.element_bytes


def residual_adds(mix: Mix) -> float:
    """Residual additions of the mean layer: one per part, where they are not among its own."""
    return mix.mean_of(lambda part: part.adds)


def _of_part(shape: LayerShape, m: Machine, part: Part) -> dict[str, BothWays[Array]]:
    """Seconds of the operators of a part beside its GEMMs and its core, by operator."""
    plan, tokens, t = shape.plan, shape.tokens, shape.tp
    seconds: dict[str, BothWays[Array]] = {}
    if isinstance(part, Mlp):
        act, f = _activation(m, part.gated), stream_ratio(plan) * tokens * part.ffn_hidden / t
        if plan.casts_in_activation:  # which counts what is written in their place
            act = BothWays(
                act.forward - _COUNTED_ELEMENT, act.backward - _COUNTED_ELEMENT * part.inputs
            )
        seconds["activation"] = BothWays(
            operator_s(plan, m, f, act.forward, m.activation_forward_s, float(part.inputs)),
            operator_s(plan, m, f, act.backward, m.activation_backward_s, _ACTIVATION_KERNELS_BACK),
        )
    if isinstance(part, Moe):
        seconds["experts"] = _experts_s(shape, m, part)
    for stream in part.streams(stream_of(plan.model)):
        elements = tokens * stream.elements.local(t)
        if stream.convolution:
            moved = stream.forward * elements * plan.training.element_bytes / _COUNTED_ELEMENT
            architecture = plan.cluster.gpu.architecture
            seconds[stream.name] = mixers.short_convolution_s(m, architecture, moved)
        elif stream.copied:
            moved = elements * plan.training.element_bytes / _COUNTED_ELEMENT
            seconds[stream.name] = BothWays(
                copy_s(m, stream.forward * moved) + m.kernel_gap,
                copy_s(m, stream.backward * moved) + m.kernel_gap,
            )
        else:
            seconds[stream.name] = BothWays(
                stream_s(plan, m, stream.forward * elements, 1.0),
                stream_s(plan, m, stream.backward * elements, 1.0),
            )
    if isinstance(part, Traced) and (traced := part.moe(plan.model.hidden)) is not None:
        arrived = m.expert_traffic * _arrived_bytes(shape, m, traced)
        seconds["experts"] = BothWays(*(stream_s(plan, m, arrived, 0.0),) * 2)
    for moved in part.moved():
        before = seconds.get(moved.name, BothWays(0.0, 0.0))
        each = _moved_s(shape, m, moved)
        seconds[moved.name] = BothWays(
            before.forward + each.forward, before.backward + each.backward
        )
    return seconds


def _moved_s(shape: LayerShape, m: Machine, moved: Moved) -> BothWays[Array]:
    """Seconds of a class of operators of a traced block, chains of them fused by a compiler."""
    samples, length = shape.micro_batch, shape.tokens * shape.cp / shape.micro_batch
    training = shape.plan.training
    fused, once = bool(training.compile), float(training.fused_norm is True)
    ratio = training.element_bytes / _COUNTED_ELEMENT
    ranks = shape.traced_ranks[moved.ranks]

    def seconds(each: Polynomial, again: Polynomial, launches: float) -> Array:
        whole, repeated = (x.at(samples, length, shape.cp) for x in (each, again))
        counted = whole - once * repeated
        return copy_s(m, ratio * counted / ranks) + (0.0 if fused else launches) * m.kernel_gap

    both = (moved.fused, moved.fused_again) if fused else (moved.apart, moved.again)
    forward, backward = (seconds(*way) for way in zip(*both, moved.kernels, strict=True))
    return BothWays(forward, backward)


def _activation(m: Machine, gated: bool) -> BothWays[Array]:
    return BothWays(m.gate_forward, m.gate_backward) if gated else _GELU


def activation_s(shape: LayerShape, m: Machine) -> tuple[Array, Array]:
    """Forward seconds of the activation functions of routed and of shared experts, of a mean layer:
    parts of `experts`."""
    routed, shared = 0.0 * shape.tokens, 0.0 * shape.tokens
    for part, count in shape.mix.parts:
        if isinstance(part, Moe):
            moved = m.expert_traffic * _activation(m, part.gated).forward * count
            each = moved / shape.mix.layers
            width = shape.routed * part.ffn_hidden / shape.etp
            beside = shape.tokens * part.shared_ffn_hidden / shape.tp
            routed = routed + stream_s(shape.plan, m, each * width, 0.0)
            shared = shared + stream_s(shape.plan, m, each * beside, 0.0)
    return routed, shared


def _experts_s(shape: LayerShape, m: Machine, moe: Moe) -> BothWays[Array]:
    """Routing, permutation and activation of experts, and the activation of shared ones."""
    plan, routed, act = shape.plan, shape.routed, _activation(m, moe.gated)
    h = float(moe.read(plan.model.hidden))
    widths = routed * moe.ffn_hidden / shape.etp
    widths = widths + shape.tokens * moe.shared_ffn_hidden / shape.tp
    arrived, once = _arrived_bytes(shape, m, moe), _ONE_OF_COPIES / moe.experts_per_token
    apart = _apart(shape, m, moe)

    def pass_s(per_width: Array, per_routed: Array, launches: float, apart: Array) -> Array:
        copies = routed * h * (per_routed + once) + arrived
        moved = m.expert_traffic * (widths * per_width + copies)
        return stream_s(plan, m, moved + apart, launches)

    return BothWays(
        pass_s(act.forward, _PERMUTE.forward, _EXPERT_KERNELS.forward, apart.forward),
        pass_s(act.backward, _PERMUTE.backward, _EXPERT_KERNELS.backward, apart.backward),
    )


def _arrived_bytes(shape: LayerShape, m: Machine, moe: Moe) -> Array:
    """Bytes that bring what arrived from other ranks to its experts, each way."""
    copied = shape.routed * float(moe.read(shape.plan.model.hidden))
    apart = (shape.ep > 1) & (shape.experts > 1)
    return np.where(apart, copied * dispatch.sorted_bytes(shape, m, moe), 0.0)


def _apart(shape: LayerShape, m: Machine, moe: Moe) -> BothWays[Array]:
    """Bytes that torch operators move for biases and clamps of experts."""
    none = 0.0 * shape.routed
    if not split_experts(shape.plan) or "expert_chains" in m.without:
        return BothWays(none, none)
    h, widths = float(moe.read(shape.plan.model.hidden)), shape.routed * moe.ffn_hidden / shape.etp
    buffered = (shape.ep > 1) & dispatch.buffers(shape.plan, shape.ep, shape.etp)

    def pass_bytes(short: float, long: float, clamped: float) -> Array:
        each = np.where(buffered, long, short)
        return moe.bias * each * shape.routed * h + moe.clamped * clamped * widths

    return BothWays(
        pass_bytes(_EXPERT_BIAS.forward, _EXPERT_BIAS_FP32.forward, _CLAMPED.forward),
        pass_bytes(_EXPERT_BIAS.backward, _EXPERT_BIAS_FP32.backward, _CLAMPED.backward),
    )


def _with_rotary(
    shape: LayerShape, m: Machine, forward: Ledger, backward: Ledger
) -> tuple[Ledger, Ledger]:
    """Rotation of queries and keys, and their layout for the attention kernel."""
    plan, model, mix = shape.plan, shape.plan.model, shape.mix
    attended = [(core, n) for core, n in mix.attended if core.spans is None]  # others count it
    for rope in (1.0, 0.0):
        cores = [(core, n) for core, n in attended if _rotates(model, core) == rope]
        share = sum(n for _, n in cores) / mix.layers
        if not cores:
            continue
        rotated, copied = (
            sum(each * n for each, (_, n) in zip(widths, cores, strict=True)) / mix.layers
            for widths in zip(*(_rotated(plan, core) for core, _ in cores), strict=True)
        )
        elements = stream_ratio(plan) * shape.tokens * copied / shape.tp
        rope *= rotated / copied
        for ledger, moved, seconds in (
            (forward, m.rotary_forward * rope + _QKV_COPIES.forward, m.rotary_forward_s),
            (backward, m.rotary_backward * rope + _QKV_COPIES.backward, m.rotary_backward_s),
        ):
            spent = operator_s(plan, m, elements, moved, seconds, share * (1.0 + (rope > 0)))
            ledger["rotary"] = ledger.get("rotary", 0.0) + spent
    return forward, backward


def _rotates(model: ModelSpec, core: Attended) -> bool:
    return model.positions == "rotary" and core.rotary


def _rotated(plan: Plan, core: Attended) -> tuple[float, float]:
    """Elements per token that rotary embedding rotates, and those that are copied into place. Fused
    kernels turn a latent query where it is, and make keys and values of what was projected as they
    turn the shared part: nope and value read, key and value written (fused_mla_yarn_rope_apply.py
    of Megatron-LM)."""
    if not (core.turned and plan.fused_rotary):
        keys = (core.kv_heads or core.heads) * core.own_kv
        return float((core.heads + keys) * core.query_width), _copied(core)
    width = core.query_width + core.value_width
    return core.heads * float(core.turned), core.heads * (width - core.turned / 2)


def _copied(core: Attended) -> float:
    """Elements per token of queries, keys and values."""
    kv = (core.kv_heads or core.heads) * core.own_kv
    return float(core.heads * core.query_width + kv * (core.query_width + core.value_width))


def _biased(shape: LayerShape, part: Part) -> Array:
    """Elements of a micro-batch whose gradients are summed for a bias."""
    h, tokens, t = shape.plan.model.hidden, shape.tokens, shape.tp
    if isinstance(part, Attention):
        (core,) = part.core()
        width = tokens * _copied(core) / t
        return part.bias_qkv * width + tokens * (part.bias_out * h)
    if isinstance(part, Latent):
        return tokens * (part.bias_out * h)
    if isinstance(part, Mlp):
        return tokens * part.bias * (part.inputs * part.ffn_hidden / t + h)
    if isinstance(part, Moe):  # of the first GEMM; the second GEMM's is in `_apart`
        return shape.routed * part.bias * (part.inputs * part.ffn_hidden / shape.etp)
    return 0.0 * tokens


def weight_traffic_s(m: Machine, gemms: Iterable[Gemm]) -> Array:
    """Seconds of memory traffic per weight and micro-batch outside of GEMMs: accumulation, casts,
    communication buffers."""
    trained = (p for p in gemms if p.weight_gradient)
    weights = sum((p.per_layer * p.n * p.k * p.batch for p in trained), start=np.zeros(1))
    return copy_s(m, weights * m.weight_bytes_moved)
