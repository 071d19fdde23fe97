"""Time of kernels on one GPU: cases worked by hand, limits, and the matrix rates that GPUs were measured to reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.estimate.machine import machine
from planner.formulas.kernels import (
    alignment_frac,
    attention_shape_frac,
    elementwise_s,
    flash_attention_s,
    gemm_s,
    launch_bound_s,
)

# a chip of 100 units that together do 100 TFLOP/s, with endless memory bandwidth and no fixed costs
IDEAL: dict[str, Any] = {
    "rate_flop_per_s": 100e12, "compute_units": 100.0, "efficiency": 1.0, "tile_exponent": 0.0, "tile_overhead_s": 0.0,
    "wave_softness": 0.0, "launch_s": 0.0, "gap_s": 0.0, "memory_bytes_per_s": 1e30, "memory_frac": 1.0,
}  # fmt: skip

WIDTHS = st.integers(1, 40000).map(float)


def test_a_product_of_exactly_one_wave() -> None:
    # 1280 x 1280 x 1024 = 100 tiles of 128 x 128 on 100 units: 2 * 128 * 128 * 1024 FLOP at 1 TFLOP/s each = 33.554 us
    assert float(gemm_s(1280, 1280, 1024, **IDEAL)) == pytest.approx(33.554432e-6, rel=1e-12)
    # a hundred products of one such tile are the same wave
    assert float(gemm_s(128, 128, 1024, 100, **IDEAL)) == pytest.approx(33.554432e-6, rel=1e-12)


def test_one_column_more_costs_another_wave() -> None:
    # 1280 x 1281: 64 x 64 tiles are best, 20 * 21 = 420 of them in ceil(4.2) = 5 waves of 2 * 64 * 64 * 1024 / 1e12 = 8.389 us
    assert float(gemm_s(1280, 1281, 1024, **IDEAL)) == pytest.approx(5 * 8.388608e-6, rel=1e-12)
    # waves that overlap perfectly: the same tiles in 4.2 waves
    soft = IDEAL | {"wave_softness": 1.0}
    assert float(gemm_s(1280, 1281, 1024, **soft)) == pytest.approx(4.2 * 8.388608e-6, rel=1e-12)


def test_the_inner_width_is_done_in_whole_steps_of_32() -> None:
    assert float(gemm_s(1280, 1280, 33, **IDEAL)) == float(gemm_s(1280, 1280, 64, **IDEAL))


def test_fixed_costs_add_up() -> None:
    # 10 us to begin and end each tile, 2 us launch, 3 us gap: 33.554 + 10 + 2 + 3 with one wave of 128 x 128 tiles
    costly = IDEAL | {"tile_overhead_s": 10e-6, "launch_s": 2e-6, "gap_s": 3e-6}
    assert float(gemm_s(1280, 1280, 1024, **costly)) == pytest.approx(48.554432e-6, rel=1e-12)


def test_a_thin_product_is_bound_by_memory() -> None:
    # 64 x 64 x 1024: (2 * 64 * 1024 operand + 64 * 64 result elements) * 2 B = 270,336 B at half of 1 GB/s = 540.672 us
    slow = IDEAL | {"memory_bytes_per_s": 1e9, "memory_frac": 0.5}
    assert float(gemm_s(64, 64, 1024, **slow)) == pytest.approx(540.672e-6, rel=1e-12)
    # an accumulation buffer of 100,000 B and 8-bit operands: 131,072 + 8,192 + 100,000 B
    assert float(gemm_s(64, 64, 1024, 1.0, 1e5, 1.0, **slow)) == pytest.approx(239264 / 0.5e9, rel=1e-12)


@given(m=WIDTHS, n=WIDTHS, k=WIDTHS, soft=st.floats(0, 1), gamma=st.floats(0, 0.5), efficiency=st.floats(0.1, 1))
def test_never_faster_than_the_rate_or_the_memory(
    m: float, n: float, k: float, soft: float, gamma: float, efficiency: float
) -> None:
    chip = IDEAL | {"wave_softness": soft, "tile_exponent": gamma, "efficiency": efficiency, "memory_bytes_per_s": 1e12}
    time = float(gemm_s(m, n, k, **chip))
    assert time >= 2 * m * n * k / (100e12 * efficiency) * (1 - 1e-12)
    assert time >= 2 * (m * k + n * k + m * n) / 1e12 * (1 - 1e-12)


@given(m=WIDTHS, n=WIDTHS, k=WIDTHS)
def test_a_larger_product_is_never_faster(m: float, n: float, k: float) -> None:
    chip = IDEAL | {"wave_softness": 0.3, "tile_exponent": 0.04, "memory_bytes_per_s": 2e12}
    time = float(gemm_s(m, n, k, **chip))
    for larger in ((m + 17, n, k), (m, n + 17, k), (m, n, k + 17)):
        assert float(gemm_s(*larger, **chip)) >= time * (1 - 1e-12)


# the most that a search over shapes ever measured, TFLOP/s: stas00/ml-engineering, compute/accelerator (MAMF finder), and for
# the RTX 4090 the range of bf16 measurements
MEASURED = {
    "a100-sxm4-80gb": (271, 271), "h100-sxm5-80gb": (794, 794), "b200-sxm-180gb": (1745, 1745), "mi300x-192gb": (668, 668),
    "rtx4090": (151, 165),
}  # fmt: skip


@pytest.mark.parametrize("gpu", MEASURED)
def test_a_large_product_reaches_the_measured_rate(gpu: str) -> None:
    m, n = machine(plans.plan(gpu=gpu)), 16384.0
    time = gemm_s(
        n, n, n, rate_flop_per_s=m.dense_rate, compute_units=m.compute_units, efficiency=m.gemm_efficiency,
        tile_exponent=m.gemm_tile_exponent, tile_overhead_s=m.gemm_tile_overhead, wave_softness=m.gemm_wave_softness,
        launch_s=m.gemm_launch, gap_s=m.kernel_gap, memory_bytes_per_s=m.memory_bandwidth, memory_frac=m.gemm_memory_frac,
    )  # fmt: skip
    low, high = MEASURED[gpu]
    assert 0.9 * low < 2 * n**3 / float(time) / 1e12 < 1.1 * high


def test_alignment() -> None:
    # 64 and 128 fill tiles; 72 fills vectors of 8 only; 50257, a vocabulary without padding, neither
    assert alignment_frac(np.array([64.0, 72.0, 50257.0]), 128.0).tolist() == pytest.approx([1.0, 0.75, 0.75 * 0.12])
    assert float(alignment_frac(128.0, 108.0)) == pytest.approx(0.75 * 0.12)  # head width 108 = 8 * 13.5
    assert float(alignment_frac(128.0, 72.0, tile_frac=1.0)) == 1.0
    # half of the rate left takes twice as long
    assert float(gemm_s(1280, 1280, 1024, alignment=0.5, **IDEAL)) == pytest.approx(2 * 33.554432e-6)


def test_elementwise() -> None:
    # 3 GB at three quarters of 2 TB/s = 2 ms, and two kernels of 4 us
    time = elementwise_s(3e9, 2.0, memory_bytes_per_s=2e12, elementwise_frac=0.75, gap_s=4e-6)
    assert time == pytest.approx(2.008e-3)
    assert elementwise_s(0.0, 0.0, memory_bytes_per_s=2e12, elementwise_frac=0.75, gap_s=4e-6) == 0.0


def test_flash_attention() -> None:
    # 1.56 TFLOP at half of 312 TFLOP/s = 10 ms, one kernel of 5 us
    assert flash_attention_s(1.56e12, 1.0, rate_flop_per_s=312e12, attention_frac=0.5, gap_s=5e-6) == pytest.approx(10.005e-3)


def test_attention_of_short_sequences_and_narrow_heads() -> None:
    # 500 tokens reach half of the rate; endless sequences of heads of 128 or wider all of it; 64 is 0.5^0.15 = 0.901
    assert float(attention_shape_frac(500.0, 128.0)) == 0.5
    assert float(attention_shape_frac(1e9, 256.0)) == pytest.approx(1.0)
    assert float(attention_shape_frac(1e9, 64.0)) == pytest.approx(0.901, abs=1e-3)
    # Dao 2023 (arXiv 2307.08691), figure 4, causal, on A100: 91 TFLOP/s at 512 tokens, 189 at 16k
    ratio = float(attention_shape_frac(512.0, 128.0) / attention_shape_frac(16384.0, 128.0))
    assert ratio == pytest.approx(91 / 189, rel=0.1)


def test_launch_bound() -> None:
    # equal queues: a sixth root of two, 12 %, above either
    assert float(launch_bound_s(3e-3, 100.0, 30e-6)) == pytest.approx(3e-3 * 2 ** (1 / 6))
    # a queue that is far shorter does not count
    assert float(launch_bound_s(1.0, 30.0, 30e-6)) == pytest.approx(1.0, rel=1e-12)
    assert float(launch_bound_s(1e-9, 30.0, 30e-6)) == pytest.approx(0.9e-3, rel=1e-12)
    assert float(launch_bound_s(0.0, 0.0, 30e-6)) == pytest.approx(0.0, abs=1e-290)


@given(gpu=st.floats(0, 1e3), operators=st.floats(0, 1e4), launch=st.floats(0, 1e-3))
def test_a_smooth_maximum_stays_near_the_maximum(gpu: float, operators: float, launch: float) -> None:
    largest = max(gpu, operators * launch)
    assert largest * (1 - 1e-12) <= float(launch_bound_s(gpu, operators, launch)) <= 1.123 * largest + 1e-250
