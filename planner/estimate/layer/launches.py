"""Operators that the CPU issues for a layer: a base count with fused norms, RoPE and gate (one
kernel each), plus what this recipe issues beside them.

Counts of unfused operators are those that torch's dispatcher sees of the layers in transformers
(Llama, Qwen 3, GPT-NeoX): tests/test_launches.py holds the sums.
"""

from __future__ import annotations

import numpy as np

from planner.estimate.communicate import Collective
from planner.estimate.layer import dispatch
from planner.estimate.layer.adapters import (
    RETURNED_OPERATORS,
    AdapterWork,
    adapter_work,
    decoding_operators,
)
from planner.estimate.layer.matmul import weight_gemms
from planner.estimate.layer.operators import stream_ratio
from planner.estimate.layer.shape import BothWays, LayerShape
from planner.estimate.machine import OPERATORS_BACKWARD, OPERATORS_FORWARD, Machine
from planner.estimate.machine.kernels import fused_experts, loops_experts, split_experts
from planner.ledger import Array
from planner.specs.layers import Mix
from planner.specs.mechanism import Replayed
from planner.specs.parts import Attended, Attention, CrossAttention, Mlp, Moe, Part, Traced
from planner.specs.plan import Plan
from planner.specs.stack import StackSpec

TAIL_OPERATORS = 2.0  # after the last saved activation: the last GEMM and the residual add
# more than one kernel each way has. An RMSNorm of torch operators: cast, square, mean, epsilon,
# root, scale, cast and weight
UNFUSED_NORM = BothWays(7.0, 15.0)
# of queries and keys: two products, sign, concatenation and sum; backward their gradients, slices
# and clones
UNFUSED_ROTARY = BothWays(9.0, 15.0)
UNFUSED_GATE = BothWays(1.0, 2.0)  # activation and product
# Megatron's scaled softmax works on this many pairs of sequence and head at a time, else torch
# operators cast, scale, mask, normalise and cast back (megatron/core/fusions/fused_softmax.py,
# is_kernel_available)
_SOFTMAX_BATCH = 4.0
_UNFUSED_SOFTMAX = BothWays(4.0, 6.0)
_QK_NORMS, _LLAMA_NORMS = 2.0, 2.0
_MOE_OPERATORS = 15.0  # router, permutation and their bookkeeping; own count
# share of a layer's operators in the attention block: 8 of 14 in a Llama with fused kernels
# (products, core, norm, RoPE and sum)
_ATTENTION_SHARE = 8 / 14
# of every local expert whose bias is scaled, added and joined: product and sum; backward products,
# sums and their casts (TEGroupedMLP._apply_bias of Megatron-LM, as torch's dispatcher sees it)
_BIASED_EXPERT = BothWays(2.0, 6.0)
_TINY_S = 1e-12  # no operator takes less
# of every local expert in a loop: its tokens are found, gathered, computed, weighted and added,
# with the numbers that the CPU reads back for it (torch's dispatcher on Qwen3MoeExperts of
# transformers 5.23, views left out)
_LOOPED_EXPERT = BothWays(14.0, 22.0)
# operators of experts backward for each forward: the two gradients of a GEMM, while the routing is
# known; a choice between 1 and 2
_EXPERT_OPERATORS_BACK = 1.3


def issued_operators(
    shape: LayerShape, m: Machine, collectives: tuple[Collective, ...]
) -> BothWays[Array]:
    """Operators that the CPU issues for one layer and micro-batch."""
    calls = sum(
        (np.where(x.placed.ranks > 1, x.issued, 0.0) for x in collectives), start=np.zeros(1)
    )
    calling, experts = m.operators_per_collective * calls, of_experts(shape, m)
    biased, looped = _biased_experts(shape, m), _looped_experts(shape, m)
    split, dense = _unfused(shape, m), 1 - _replayed(m) * captured_share(shape.plan, shape.mix)
    full = _of_decoder(shape.plan, shape.mix)
    work = adapter_work(shape, m)
    adapters, products = _adapters(shape, work)
    decoding = decoding_operators(shape)
    reduced, gathered = _hooks(shape, work)
    return BothWays(
        dense * (full * m.operators_forward + split.forward)
        + adapters.forward
        + decoding.forward
        + experts
        + _BIASED_EXPERT.forward * biased
        + _LOOPED_EXPERT.forward * looped
        + gathered
        + calling,
        dense * (full * m.operators_backward + split.backward - products)
        + adapters.backward
        + decoding.backward
        + reduced
        + gathered
        + _EXPERT_OPERATORS_BACK * experts
        + _BIASED_EXPERT.backward * biased
        + _LOOPED_EXPERT.backward * looped
        + calling,
    )


def _adapters(shape: LayerShape, work: AdapterWork | None) -> tuple[BothWays[Array], Array]:
    """Operators of adapters, and the gradients of weights that are not computed beside them."""
    if work is None:
        return BothWays(np.zeros(1), np.zeros(1)), np.zeros(1)
    products = sum((p.per_layer * (not p.routed) for p in weight_gemms(shape)), start=np.zeros(1))
    returned = RETURNED_OPERATORS * (stream_ratio(shape.plan) > 1) * products
    issued = BothWays(work.issued.forward + returned, work.issued.backward + returned)
    return issued, products


def _of_decoder(plan: Plan, mix: Mix) -> float:
    """Operators of a mean layer over a decoder layer: mixers count as attention does."""
    fused = bool(plan.training.compile)
    return mix.mean_of(lambda part: _operators(part, fused)) / float(OPERATORS_FORWARD)


def _operators(part: Part, fused: bool) -> float:
    """Operators of a part, relative to OPERATORS_FORWARD of a decoder layer. fused: compiled
    code."""
    if isinstance(part, Traced):
        return (fused and part.fused_issued) or part.issued
    if part.operators is not None:
        return part.operators
    share = _ATTENTION_SHARE if part.mixes else 1 - _ATTENTION_SHARE
    return share * float(OPERATORS_FORWARD)


def decoder_operators(stack: StackSpec) -> float:
    """Operators of a layer of a Llama without tensor parallelism on this stack, both ways."""
    fusion = stack.fusion
    parts = (
        (_LLAMA_NORMS * (not fusion.fused_norm), UNFUSED_NORM),
        (float(not fusion.fused_rotary), UNFUSED_ROTARY),
        (float(not fusion.fused_gate), UNFUSED_GATE),
    )
    total = float(OPERATORS_FORWARD) + float(OPERATORS_BACKWARD)
    return total + sum(n * (each.forward + each.backward) for n, each in parts)


def of_experts(shape: LayerShape, m: Machine) -> Array:
    """Operators of routing and of local experts, of a mean layer."""
    if "expert_operators" in m.without:
        return 0.0 * shape.experts
    count = "low_operators" if shape.plan.recipe else "operators"
    each = dispatch.by_dispatcher(shape.plan, shape.ep, shape.etp, count)
    if fused_experts(shape.plan) or loops_experts(shape.plan):  # loops are counted apart
        each = 0.0 * each
    captured = shape.plan.stated(lambda each: each.replayed()) or Replayed()
    routing = _MOE_OPERATORS - _replayed(m) * captured.routing
    # what a traced block issues is counted with its code
    share = shape.mix.mean_of(lambda part: float(isinstance(part, Moe)))
    return share * (routing + each * shape.experts)


def _biased_experts(shape: LayerShape, m: Machine) -> Array:
    """Local experts of a mean layer whose biases are separate operators."""
    plan, moe = shape.plan, shape.plan.model.routed
    if moe is None or not moe.bias or not split_experts(plan) or "expert_chains" in m.without:
        return 0.0 * shape.experts
    return shape.mix.expert_share * shape.experts


def _looped_experts(shape: LayerShape, m: Machine) -> Array:
    """Local experts of a mean layer that run sequentially in a loop."""
    looped = loops_experts(shape.plan) and "expert_operators" not in m.without
    return looped * shape.mix.expert_share * shape.experts


def _replayed(m: Machine) -> Array:
    """Fraction of operator launch time saved by CUDA graphs."""
    return np.maximum(1 - m.captured_launch / np.maximum(m.operator_launch, 1e-9), 0.0)


def captured_share(plan: Plan, mix: Mix) -> float:
    """Share of a layer's operators, experts excluded, that are captured in parts."""
    scopes = (plan.stated(lambda each: each.replayed()) or Replayed()).parts
    if "layer" in scopes:
        return 1.0
    kinds = {"attn": _attends, "mamba": _scans, "mlp": lambda part: isinstance(part, Mlp)}
    each = {"attn": _ATTENTION_SHARE, "mamba": _ATTENTION_SHARE, "mlp": 1 - _ATTENTION_SHARE}
    captured = (each[scope] * mix.mean_of(kinds[scope]) for scope in scopes if scope in kinds)
    return sum(captured, start=0.0) / max(_of_decoder(plan, mix), _TINY_S)


def _attends(part: Part) -> bool:
    return any(isinstance(core, Attended) for core in part.core())


def _scans(part: Part) -> bool:
    return part.mixes and not _attends(part)


def _unfused(shape: LayerShape, m: Machine) -> BothWays[Array]:
    """Launches added by kernels that are not fused."""
    if "split_operators" in m.without:
        return BothWays(np.zeros(1), np.zeros(1))
    plan, model, mix = shape.plan, shape.plan.model, shape.mix
    norms = mix.norms + mix.mean_of(_qk_norms)
    rotated = sum(n for core, n in mix.attended if core.rotary) / mix.layers
    gates = mix.mean_of(lambda part: float(isinstance(part, Mlp | Moe) and part.gated))
    parts = (
        ((not plan.fused_norm) * norms, UNFUSED_NORM),
        ((not plan.fused_rotary) * (model.positions == "rotary") * rotated, UNFUSED_ROTARY),
        ((not plan.fused_gate) * gates, UNFUSED_GATE),
        (_split_softmax(shape), _UNFUSED_SOFTMAX),
    )
    return BothWays(
        sum((n * each.forward for n, each in parts), start=np.zeros(1)),
        sum((n * each.backward for n, each in parts), start=np.zeros(1)),
    )


def _qk_norms(part: Part) -> float:
    return _QK_NORMS * (isinstance(part, Attention | CrossAttention) and part.qk_norm != "none")


def _split_softmax(shape: LayerShape) -> Array:
    """Share of layers whose local heads x sequences do not divide into blocks of the fused
    softmax."""
    fused, mix = shape.plan.attention == "fused_softmax", shape.mix
    each = (
        n * (np.mod(shape.micro_batch * core.heads / shape.tp, _SOFTMAX_BATCH) > 0)
        for core, n in mix.attended
    )
    return fused * sum(each, start=0.0 * shape.tp) / mix.layers


def _hooks(shape: LayerShape, work: AdapterWork | None) -> tuple[Array, Array]:
    """Operators' worth of hooks: backward as the gradient of each weight is ready, and both ways
    around each module with weights, where ZeRO-3 gathers and frees them."""
    launch = shape.plan.stack.launch
    each, around = float(launch.operators_per_gradient), float(launch.operators_per_module)
    if not (each or around):
        return np.zeros(1), np.zeros(1)
    gemms = [(p.per_layer + 0.0 * shape.tp, p.weight_gradient) for p in weight_gemms(shape)]
    norms, none = shape.mix.norms, np.zeros(1)
    weights, added = sum((n for n, _ in gemms), none) + norms, 0.0 if work is None else work.weights
    gradients = sum((frac * n for n, frac in gemms), none) + shape.plan.gradients_frac * norms
    trained = gradients + added
    return each * trained, around * shape.hooked * (weights + added)
