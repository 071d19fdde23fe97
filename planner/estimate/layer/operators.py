"""Operators bound by memory bandwidth: norms, residual adds, activation, RoPE, routing of tokens.

Bytes are counted from the tensors each kernel reads and writes, for 16-bit elements; fused Megatron
kernels, Korthikanti et al. 2022 (arXiv 2205.05198) section 4. Those of norm, RoPE and gate depend
on the stack: see estimate.machine.kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np

from planner.estimate.layer import dispatch
from planner.estimate.layer.matmul import Gemm
from planner.estimate.layer.shape import BothWays, LayerShape
from planner.estimate.machine import Machine
from planner.formulas import flops, kernels
from planner.ledger import Array, Ledger
from planner.specs.plan import Plan

_COUNTED_ELEMENT = 2.0  # bytes of the elements for which the bytes below are counted

# per hidden element of a residual add: two inputs and a sum; the two branches' gradients are added
# on the way back
_ADD = BothWays(6.0, 6.0)
_BIAS_DROPOUT_ADD = BothWays(7.0, 11.0)
_ADDS = 2.0  # per layer: after attention and after the MLP
_NORM_KERNELS_BACK = 2.0  # gradients of the input, and of scale and shift
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


def stream_s(plan: Plan, m: Machine, moved_bytes: Array, launches: float) -> Array:
    """Seconds of bandwidth-bound kernels whose bytes are counted for 16-bit elements."""
    return kernels.elementwise_s(
        moved_bytes * plan.training.element_bytes / _COUNTED_ELEMENT,
        launches,
        memory_bytes_per_s=m.memory_bandwidth,
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
    """What was measured on this device in place of what is counted, where it was."""
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
    plan, model = shape.plan, shape.plan.model
    tokens, t, h = shape.tokens, shape.tp, float(model.hidden)
    one = functools.partial(operator_s, plan, m)
    hidden, norms = shape.local_tokens * h, float(model.norms_per_layer)
    add = _BIAS_DROPOUT_ADD if model.dropout or model.bias_mlp else _ADD
    back = _NORM_KERNELS_BACK * norms
    forward: Ledger = {
        "norm": one(hidden * norms, m.norm_forward, m.norm_forward_s, norms),
        "residual": one(hidden * _ADDS, add.forward, m.residual_forward_s, _ADDS),
    }
    backward: Ledger = {
        "norm": one(hidden * norms, m.norm_backward, m.norm_backward_s, back),
        "residual": one(hidden * _ADDS, add.backward, m.residual_backward_s, _ADDS),
    }
    gated = model.mlp == "gated"
    act = BothWays(m.gate_forward, m.gate_backward) if gated else _GELU
    dense, share = 1 - model.expert_share, model.expert_share
    if dense > 0:
        f, launches = tokens * model.ffn_hidden / t, float(model.mlp_inputs)
        forward["activation"] = dense * one(f, act.forward, m.activation_forward_s, launches)
        backward["activation"] = dense * one(
            f, act.backward, m.activation_backward_s, _ACTIVATION_KERNELS_BACK
        )
    if model.moe is not None and share > 0:
        routed = shape.routed
        widths = (
            routed * model.moe.ffn_hidden / shape.etp + tokens * model.moe.shared_ffn_hidden / t
        )

        def experts_s(per_width: Array, per_routed: Array, launches: float) -> Array:
            moved = m.expert_traffic * (widths * per_width + routed * h * per_routed)
            return share * stream_s(plan, m, moved, launches)

        arrived = dispatch.by_dispatcher(plan, shape.ep, shape.etp, dispatch.SORTED_BYTES)
        more = np.where((shape.ep > 1) & (shape.experts > 1), arrived, 0.0)
        more = more + _ONE_OF_COPIES / model.moe.experts_per_token
        forward["experts"] = experts_s(
            act.forward, _PERMUTE.forward + more, _EXPERT_KERNELS.forward
        )
        backward["experts"] = experts_s(
            act.backward, _PERMUTE.backward + more, _EXPERT_KERNELS.backward
        )
    qk, v = flops.head_widths(model)
    width = tokens * (model.heads * qk + model.kv_heads * (qk + v)) / t
    rope = 1.0 if model.positions == "rotary" else 0.0
    copied = m.rotary_forward * rope + _QKV_COPIES.forward
    forward["rotary"] = one(width, copied, m.rotary_forward_s, 1.0 + rope)
    copied = m.rotary_backward * rope + _QKV_COPIES.backward
    backward["rotary"] = one(width, copied, m.rotary_backward_s, 1.0 + rope)
    biased = model.bias_qkv * width + tokens * (
        model.bias_attention_out * h
        + model.bias_mlp * (model.mlp_inputs * model.ffn_hidden / t + h)
    )
    if np.any(biased > 0):
        launches = _BIAS_KERNELS * (model.bias_qkv + model.bias_mlp)
        backward["bias"] = stream_s(plan, m, _BIAS_GRADIENT * biased, launches)
    return BothWays(forward, backward)


def weight_traffic_s(m: Machine, gemms: Iterable[Gemm]) -> Array:
    """Seconds of what the stack moves per weight and micro-batch outside of GEMMs: accumulation,
    casts, communication buffers."""
    held = sum(p.per_layer * p.n * p.k * p.batch for p in gemms)
    return copy_s(m, held * m.weight_bytes_moved)
