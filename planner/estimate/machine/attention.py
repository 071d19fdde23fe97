"""Rates of the attention kernel that a plan runs on its GPU."""

from __future__ import annotations

from typing import Any

from planner.ledger import Sourced
from planner.specs.hardware import GpuSpec
from planner.specs.names import AttentionName
from planner.specs.plan import Plan

# what a request for a kernel comes to on an architecture that it is not written for; on any other
# architecture the newest kernels are FlashAttention-2's
_STANDS_FOR: dict[str, dict[AttentionName, AttentionName]] = {
    "hopper": {"flash4": "flash3"},
    "blackwell": {"flash3": "flash4"},
}
_NEWEST = ("flash3", "flash4")

# share of the profile's attention rates where it has no curve of the kernel. FA1: over validated
# runs, more than the half of Dao 2023 figure 4; cuDNN on Hopper: 595 against 370 TFLOP/s forward
# (1.6) on H100 at head width 128, Shah et al. 2024 (arXiv 2407.08608) figure 5, as is FA3 there,
# lowered over validated runs
_OVER_PROFILE: dict[AttentionName, float] = {"flash1": 0.8}
_OVER_PROFILE_HOPPER: dict[AttentionName, float] = {"cudnn": 1.6, "flash3": 1.6}
_SOURCE = "kernel over the profile's attention rates: arXiv 2307.08691, 2407.08608"


# rate of an fp8 kernel over the rate of the same in 16 bit: medians of kernels above 0.5 ms in
# the trtllm 1.3.0rc20 tables of context attention of ai-dynamo/aiconfigurator@095f58a5, 1.23 on
# H100, 1.20 on B200, 1.24 on GB300. Both passes together at 8,192 tokens, cuDNN's own benchmarks
# (benchmark/sdpa_benchmark_training of NVIDIA/cudnn-frontend): 1.22 on B200, 1.08 to 1.17 on GB200,
# 1.29 on GB300
_FP8 = 1.22


def attention_numbers(plan: Plan) -> dict[str, Any]:
    """Numbers of attention by field of Machine.

    A curve of the kernel is stated at the clock that the kernel itself sustains, the profile's
    rates at the clock of training; what was measured on the device itself comes before both.
    """
    gpu, profile = plan.cluster.gpu, plan.cluster.gpu.kernels
    kernel = kernel_on(plan.attention, gpu)
    curve = None if profile.attention_half_sequence else profile.attention.get(kernel)
    if curve is None:
        over = _OVER_PROFILE | (_OVER_PROFILE_HOPPER if gpu.architecture == "hopper" else {})
        ratio = Sourced(over.get(kernel, 1.0), "1", "assumed", _SOURCE)
        ratios, halves = (ratio, ratio), (profile.attention_half_sequence or 0.0,) * 2
    else:
        usual = float(profile.sustained_clock)
        ratios = (
            _over(curve.forward, profile.attention_forward, usual),
            _over(curve.backward, profile.attention_backward, usual),
        )
        halves = (curve.half_forward, curve.half_backward)
    if plan.is_low("attention"):
        ratios = (_faster(ratios[0]), _faster(ratios[1]))
    return {
        "attention_forward": profile.attention_forward,
        "attention_backward": profile.attention_backward,
        "attention_version_forward": ratios[0],
        "attention_version_backward": ratios[1],
        "attention_half_forward": halves[0],
        "attention_half_backward": halves[1],
        "attention_width_exponent": profile.attention_width_exponent or 0.0,
    }


def _faster(ratio: Sourced) -> Sourced:
    return Sourced(float(ratio) * _FP8, "1", "assumed", f"{ratio.source}; {_FP8} times in fp8")


def _over(share: Sourced, profile: Sourced, clock: float) -> Sourced:
    """A kernel's rate over the profile's at the clock of training."""
    return Sourced(float(share) / (float(profile) * clock), "1", share.kind, share.source)


def kernel_on(requested: AttentionName, gpu: GpuSpec) -> AttentionName:
    """Kernel that a request comes to on this GPU: FlashAttention-3 supports Hopper, version 4
    Blackwell and Hopper."""
    if gpu.architecture in _STANDS_FOR:
        return _STANDS_FOR[gpu.architecture].get(requested, requested)
    return "flash2" if requested in _NEWEST else requested
