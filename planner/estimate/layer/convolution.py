"""Convolutions: implicit GEMMs over windows, groups packed into them, and depthwise ones."""

from __future__ import annotations

import numpy as np

from planner.estimate.layer.gemm import Gemm, gemm_at_rate_s
from planner.estimate.layer.shape import BothWays
from planner.estimate.machine import Machine
from planner.formulas import convolutions
from planner.formulas.kernels import elementwise_s
from planner.ledger import Array
from planner.specs.plan import Plan

_SQUARE = 9  # pixels of the kernel that Winograd's algorithm is for
_DENSE = 1.01  # elements read per pixel of the output, over its channels, at stride 1


def convolution_s(plan: Plan, m: Machine, p: Gemm) -> BothWays[Array]:
    """Seconds of a convolution (implicit GEMM, Chetlur et al. 2014, arXiv 1410.0759), whose kernels
    read a pixel once from memory, however many windows have it. The input gradient is a convolution
    of the output gradient; what a model is given needs none."""
    one_pass = _depthwise if p.batch > 1 and p.k == p.taps else _implicit
    forward, dgrad, wgrad = (
        seconds + _conversion_s(plan, m, p) for seconds in one_pass(plan, m, p)
    )
    backward = dgrad if p.input_gradient else 0.0 * dgrad
    return BothWays(forward, backward + p.weight_gradient * wgrad)


def _moved_bytes(plan: Plan, p: Gemm) -> Array:
    """Bytes that one pass moves: its three tensors."""
    weights, written = p.batch * p.k * p.n, p.batch * p.m * p.n
    return plan.training.element_bytes * (p.read + written + weights)


def _depthwise(plan: Plan, m: Machine, p: Gemm) -> tuple[Array, Array, Array]:
    seconds = convolutions.depthwise_s(
        plan.training.element_bytes * p.batch * p.m * p.k * p.n,
        _moved_bytes(plan, p),
        vector_flop_per_s=m.vector_rate,
        cached_bytes_per_flop=float(convolutions.DEPTHWISE),
        memory_bytes_per_s=m.memory_bandwidth * m.stream_frac,
    )
    return seconds, seconds, seconds


def _implicit(plan: Plan, m: Machine, p: Gemm) -> tuple[Array, Array, Array]:
    """Groups are side by side in a tile: each output channel has the channels of its own group as
    inner width, up to what an instruction multiplies."""
    width, moved = plan.training.element_bytes, _moved_bytes(plan, p)
    channels, vector = p.k / p.taps, plan.precision == "fp32"
    lanes = convolutions.LANE_BYTES / width
    inner, outer = (1.0, 1.0) if vector else (lanes, lanes)
    if p.batch > 1 and not vector:
        inner, outer = convolutions.GROUP_CHANNELS, convolutions.GROUP_CHANNELS
    into, out = convolutions.padded(channels, inner), convolutions.padded(p.n, outer)
    rate = m.wide_rate
    if vector:  # at their full clock: fp32 units draw less than matrix units
        rate = rate / m.sustained_clock
        dense = p.read <= _DENSE * p.batch * p.m * channels
        rate = rate * np.where(dense & (p.taps == _SQUARE), float(convolutions.WINOGRAD), 1.0)

    def pass_s(rows: Array, columns: Array, inside: Array) -> Array:
        implied = width * inside * (rows + columns) + 2.0 * rows * columns
        sizes = rows, columns, inside, 1.0
        return gemm_at_rate_s(m, sizes, rate, width, extra_bytes=moved - implied)

    groups = p.batch
    return (
        pass_s(p.m, groups * (p.n if groups > 1 else out), into * p.taps),
        pass_s(p.m, groups * (channels if groups > 1 else into), out * p.taps),
        pass_s(into * p.taps, groups * (p.n if groups > 1 else out), p.m),
    )


def _conversion_s(plan: Plan, m: Machine, p: Gemm) -> Array:
    """Seconds of kernels around a pass that convert tensors with channels first, as torch has them
    by default; generated code has them last from the start. Kernels of fp32 units and of single
    channels read either."""
    training = plan.training
    if training.channels_last or training.compile or plan.precision == "fp32":
        return 0.0 * p.m
    if p.batch > 1 and p.k == p.taps:
        return 0.0 * p.m
    moved = convolutions.conversion_bytes(p.read, p.batch * p.m * p.n, training.element_bytes)
    return elementwise_s(
        moved,
        0.0,
        memory_bytes_per_s=m.memory_bandwidth,
        elementwise_frac=m.stream_frac,
        gap_s=m.kernel_gap,
    )
