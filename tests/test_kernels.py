"""Time of kernels on one GPU: cases worked by hand, limits, and the matrix rates that GPUs were
measured to reach."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.estimate.machine import machine
from planner.estimate.machine.clock import law_of
from planner.formulas.kernels import (
    ENERGY_PER_FLOP,
    alignment_frac,
    attention_shape_frac,
    blocked_launch_s,
    elementwise_s,
    filled_frac,
    flash_attention_s,
    gemm_s,
    launch_bound_s,
    power_limited_clock_frac,
)
from planner.inputs import catalog
from planner.specs.hardware import GpuSpec
from planner.specs.model import ModelSpec

# a chip of 100 units that together do 100 TFLOP/s, with endless memory bandwidth and no fixed costs
IDEAL: dict[str, Any] = {
    "rate_flop_per_s": 100e12,
    "compute_units": 100.0,
    "efficiency": 1.0,
    "tile_exponent": 0.0,
    "tile_overhead_s": 0.0,
    "wave_softness": 0.0,
    "launch_s": 0.0,
    "memory_bytes_per_s": 1e30,
    "memory_frac": 1.0,
}

WIDTHS = st.integers(1, 40000).map(float)


def test_a_product_of_exactly_one_wave() -> None:
    # 1280 x 1280 x 1024 = 100 tiles of 128 x 128 on 100 units: 2 * 128 * 128 * 1024 FLOP at 1
    # TFLOP/s each = 33.554 us
    assert float(gemm_s(1280, 1280, 1024, **IDEAL)) == pytest.approx(33.554432e-6, rel=1e-12)
    # a hundred products of one such tile are the same wave
    assert float(gemm_s(128, 128, 1024, 100, **IDEAL)) == pytest.approx(33.554432e-6, rel=1e-12)


def test_one_column_more_costs_another_wave() -> None:
    # 1280 x 1281 x 32, one step that cannot be split: 64 x 64 tiles are best, 20 * 21 = 420 of them
    # in ceil(4.2) = 5 waves of 2 * 64 * 64 * 32 / 1e12 = 0.262 us
    assert float(gemm_s(1280, 1281, 32, **IDEAL)) == pytest.approx(5 * 0.262144e-6, rel=1e-12)
    # waves that overlap perfectly: the same tiles in 4.2 waves
    soft = IDEAL | {"wave_softness": 1.0}
    assert float(gemm_s(1280, 1281, 32, **soft)) == pytest.approx(4.2 * 0.262144e-6, rel=1e-12)


def test_the_inner_width_is_done_in_whole_steps_of_32() -> None:
    assert float(gemm_s(1280, 1280, 33, **IDEAL)) == float(gemm_s(1280, 1280, 64, **IDEAL))


def test_fixed_costs_add_up() -> None:
    # 10 us to begin and end each tile, 2 us launch: 33.554 + 10 + 2 with one wave of 128 x 128
    # tiles
    costly = IDEAL | {"tile_overhead_s": 10e-6, "launch_s": 2e-6}
    assert float(gemm_s(1280, 1280, 1024, **costly)) == pytest.approx(45.554432e-6, rel=1e-12)


def test_few_tiles_are_split_along_the_inner_width() -> None:
    # 640 x 640: 25 tiles of 128 x 128 on 100 units; in four parts each does k / 4: 2 * 128 * 128 *
    # 4096 / 1e12 = 134.218 us (100 tiles of 64 x 64 in one part each take as long), and 16 parts of
    # 640 x 640 make 4 waves of the same
    assert float(gemm_s(640, 640, 16384, **IDEAL)) == pytest.approx(134.217728e-6, rel=1e-12)
    # 384 x 384: 9 tiles of 128 x 128 in 16 parts are 144, two waves of 33.6 us; 36 of 64 x 64 in 4
    # parts are the same; in 16 parts they are 576, six waves of 2 * 64 * 64 * 1024 / 1e12 = 8.389
    # us, the best
    assert float(gemm_s(384, 384, 16384, **IDEAL)) == pytest.approx(50.331648e-6, rel=1e-12)


def test_partial_sums_are_traffic() -> None:
    # 640 x 640 x 16384 with memory of 1 TB/s: four parts write and read 4 B partial sums, (4 * 4 +
    # 4) * 640 * 640 B, in 8.192 us; operands and result, 42.76 MB, take 42.76 us beside it
    time = float(
        gemm_s(640, 640, 16384, **IDEAL | {"tile_exponent": 0.1, "memory_bytes_per_s": 1e12})
    )
    arithmetic = 134.217728e-6 * 2**0.1 + 8.192e-6  # 128 x 128 is half of the largest tile
    assert time == pytest.approx((arithmetic**4 + 42.762240e-6**4) ** 0.25, rel=1e-6)


def test_arithmetic_and_traffic_that_take_equally_long() -> None:
    # smooth maximum: a fourth root of two, 19 %, above either
    moved = 2 * (1280 * 1024 * 2 + 1280 * 1280)
    balanced = IDEAL | {"memory_bytes_per_s": moved / 33.554432e-6}
    assert float(gemm_s(1280, 1280, 1024, **balanced)) == pytest.approx(
        33.554432e-6 * 2**0.25, rel=1e-12
    )


def test_a_thin_product_is_bound_by_memory() -> None:
    # 64 x 64 x 1024: (2 * 64 * 1024 operand + 64 * 64 result elements) * 2 B = 270,336 B at half of
    # 1 GB/s = 540.672 us
    slow = IDEAL | {"rate_flop_per_s": 1e30, "memory_bytes_per_s": 1e9, "memory_frac": 0.5}
    assert float(gemm_s(64, 64, 1024, **slow)) == pytest.approx(540.672e-6, rel=1e-12)
    # an accumulation buffer of 100,000 B and 8-bit operands: 131,072 + 8,192 + 100,000 B
    assert float(gemm_s(64, 64, 1024, 1.0, 1e5, 1.0, **slow)) == pytest.approx(
        239264 / 0.5e9, rel=1e-12
    )


@given(
    m=WIDTHS,
    n=WIDTHS,
    k=WIDTHS,
    soft=st.floats(0, 1),
    gamma=st.floats(0, 0.5),
    efficiency=st.floats(0.1, 1),
)
def test_never_faster_than_the_rate_or_the_memory(
    m: float, n: float, k: float, soft: float, gamma: float, efficiency: float
) -> None:
    chip = IDEAL | {
        "wave_softness": soft,
        "tile_exponent": gamma,
        "efficiency": efficiency,
        "memory_bytes_per_s": 1e12,
    }
    time = float(gemm_s(m, n, k, **chip))
    assert time >= 2 * m * n * k / (100e12 * efficiency) * (1 - 1e-12)
    assert time >= 2 * (m * k + n * k + m * n) / 1e12 * (1 - 1e-12)


@given(m=WIDTHS, n=WIDTHS, k=WIDTHS)
def test_a_larger_product_is_never_faster(m: float, n: float, k: float) -> None:
    chip = IDEAL | {"wave_softness": 0.3, "tile_exponent": 0.04, "memory_bytes_per_s": 2e12}
    time = float(gemm_s(m, n, k, **chip))
    for larger in ((m + 17, n, k), (m, n + 17, k), (m, n, k + 17)):
        assert float(gemm_s(*larger, **chip)) >= time * (1 - 1e-12)


# the most that a search over shapes ever measured, TFLOP/s: stas00/ml-engineering,
# compute/accelerator (MAMF finder), and for the RTX 4090 the range of bf16 measurements. The curve
# is the typical shape: the best of thousands may be 15 % faster.
MEASURED = {
    "a100-sxm4-80gb": (271, 271),
    "h100-sxm5-80gb": (794, 794),
    "b200-sxm-180gb": (1745, 1745),
    # MI325X, the same chip at 1,000 W: 750 at this size, by the cubic law 681 at 750 W
    "mi300x-192gb": (668, 750),
    "mi325x-256gb": (750, 786),
    "mi355x-288gb": (1560, 1660),  # 1,560 at the clock that power leaves, of 0.88 to 1
    "rtx4090": (151, 165),
}


@pytest.mark.parametrize("gpu", MEASURED)
def test_a_large_product_reaches_the_measured_rate(gpu: str) -> None:
    m, n = machine(plans.plan(gpu=gpu)), 16384.0
    time = gemm_s(
        n,
        n,
        n,
        rate_flop_per_s=m.dense_rate,
        compute_units=m.compute_units,
        efficiency=m.gemm_efficiency,
        tile_exponent=m.gemm_tile_exponent,
        tile_overhead_s=m.gemm_tile_overhead,
        wave_softness=m.gemm_wave_softness,
        launch_s=m.gemm_launch,
        memory_bytes_per_s=m.memory_bandwidth,
        memory_frac=m.gemm_memory_frac,
    )
    low, high = MEASURED[gpu]
    assert 0.87 * low < 2 * n**3 / float(time) / 1e12 < 1.1 * high


def test_alignment() -> None:
    # 16 B are 8 elements of 2 B, 16 of 1 B, 4 of 4 B; 50257 is a vocabulary without padding, 108
    # and 150 BigScience's head widths
    assert alignment_frac(np.array([64.0, 72.0, 50257.0]), 128.0, 2.0, 0.5).tolist() == [
        1.0,
        1.0,
        0.5,
    ]
    assert alignment_frac(128.0, np.array([104.0, 108.0, 150.0]), 2.0, 0.0625).tolist() == [
        1.0,
        0.0625,
        0.0625,
    ]
    assert alignment_frac(np.array([72.0, 80.0]), 128.0, 1.0, 0.5).tolist() == [0.5, 1.0]
    assert float(alignment_frac(108.0, 12.0, 4.0, 0.5)) == 1.0
    # half of the rate left takes twice as long
    assert float(gemm_s(1280, 1280, 1024, alignment=0.5, **IDEAL)) == pytest.approx(
        2 * 33.554432e-6
    )


ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def fit_kernels() -> ModuleType:
    """The benchmark that fitted the curves: it says what a table shows of a curve (the clock of a
    short and a long product)."""
    spec = importlib.util.spec_from_file_location(
        "fit_kernels", ROOT / "benchmarks" / "fit_kernels.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# tests/data/gemm.csv: 240 rows of each table, drawn from the half that the fit never saw. Largest
# mean error of all of them, of shapes that training runs, and of m, n, k >= 1024: the errors of the
# fit (docs/mechanisms/gemms.md) with a margin for the smaller sample
HELD_OUT = {
    "a100-sxm4-80gb": (0.085, 0.055, 0.05),
    "h100-sxm5-80gb": (0.09, 0.075, 0.065),
    "h200-sxm-141gb": (0.105, 0.095, 0.085),
    "b200-sxm-180gb": (0.115, 0.075, 0.065),
    "gb200-186gb": (0.115, 0.09, 0.07),
    "b300-sxm-270gb": (0.115, 0.09, 0.07),
    "gb300-279gb": (0.105, 0.08, 0.07),
    "l40s": (0.14, 0.10, 0.085),
}


def shipped(gpu: str) -> np.ndarray:
    """The curve of a profile in the units of the fit."""
    k = catalog.load("gpus", GpuSpec, gpu).kernels
    assert k.power_clock is not None
    return np.array(
        [
            k.gemm_efficiency,
            k.gemm_tile_exponent,
            k.gemm_tile_overhead * 1e6,
            k.gemm_wave_softness,
            k.gemm_launch * 1e6,
            k.memory_frac,
            k.power_clock,
        ],
        float,
    )


@pytest.mark.parametrize("gpu", HELD_OUT)
def test_shipped_curves_on_shapes_the_fit_never_saw(gpu: str, fit_kernels: ModuleType) -> None:
    (table,) = (
        t for t in fit_kernels.tables([ROOT / "tests" / "data" / "gemm.csv"]) if t.gpu == gpu
    )
    hardware = fit_kernels.hardware_of(catalog.load("gpus", GpuSpec, gpu))
    error = np.abs(fit_kernels.predicted_s(table, hardware, shipped(gpu)) / table.time_s - 1)
    everything = np.ones(len(table.m), bool)
    assert len(table.m) == 240
    for rows, limit in zip(
        (everything, table.trained(), table.large()), HELD_OUT[gpu], strict=True
    ):
        assert rows.sum() > 100
        assert error[rows].mean() < limit


# tests/data/gemm_fp8.csv: 60 rows of each table, drawn as those above among m, n, k >= 2048;
# largest mean error, and the quantisation of the activations in the table (bytes per element, us)
FP8_HELD_OUT = {
    "h100-sxm5-80gb": (0.065, 7.3, 8.8),
    "h200-sxm-141gb": (0.06, 9.5, 8.8),
    "b200-sxm-180gb": (0.07, 8.9, 12.1),
    "b300-sxm-270gb": (0.07, 8.4, 11.4),
    "gb200-186gb": (0.06, 8.9, 11.8),
    "gb300-279gb": (0.06, 8.8, 11.7),
}


@pytest.mark.parametrize("gpu", FP8_HELD_OUT)
def test_fp8_rates_on_shapes_the_fit_never_saw(gpu: str, fit_kernels: ModuleType) -> None:
    (table,) = (
        t for t in fit_kernels.tables([ROOT / "tests" / "data" / "gemm_fp8.csv"]) if t.gpu == gpu
    )
    profile = catalog.load("gpus", GpuSpec, gpu)
    limit, moved, fixed_us = FP8_HELD_OUT[gpu]
    assert profile.kernels.fp8_efficiency is not None
    assert len(table.m) == 60
    values = np.array([float(profile.kernels.fp8_efficiency), moved, fixed_us, 0.97])
    error = np.abs(fit_kernels.predicted_low_s(table, profile, values) / table.time_s - 1)
    assert error.mean() < limit


# NVFP4 likewise, on rows that the fit did not draw
NVFP4_HELD_OUT = {
    "b200-sxm-180gb": (0.08, 6.33, 6.11, 0.906),
    "gb200-186gb": (0.08, 6.19, 6.24, 0.999),
    "b300-sxm-270gb": (0.12, 5.3, 9.53, 1.0),
    "gb300-279gb": (0.12, 5.38, 9.28, 1.0),
}


@pytest.mark.parametrize("gpu", NVFP4_HELD_OUT)
def test_nvfp4_rates_on_shapes_the_fit_never_saw(gpu: str, fit_kernels: ModuleType) -> None:
    tables = fit_kernels.tables([ROOT / "tests" / "data" / "gemm_nvfp4.csv"])
    (table,) = (t for t in tables if t.gpu == gpu)
    profile = catalog.load("gpus", GpuSpec, gpu)
    limit, *others = NVFP4_HELD_OUT[gpu]
    assert len(table.m) == 60
    values = np.array([float(profile.kernels.nvfp4_efficiency or 0), *others])
    error = np.abs(fit_kernels.predicted_low_s(table, profile, values) / table.time_s - 1)
    assert error.mean() < limit


@pytest.mark.parametrize("gpu", HELD_OUT)
def test_no_kernel_is_shorter_than_the_gap(gpu: str, fit_kernels: ModuleType) -> None:
    (table,) = (
        t for t in fit_kernels.tables([ROOT / "tests" / "data" / "gemm.csv"]) if t.gpu == gpu
    )
    floor = float(catalog.load("gpus", GpuSpec, gpu).kernels.kernel_gap)
    assert 0.9 * floor < float(table.time_s.min()) < 1.3 * floor


@pytest.mark.parametrize("gpu", HELD_OUT)
def test_long_products_run_at_the_power_clock(gpu: str, fit_kernels: ModuleType) -> None:
    # without it every long product is predicted too fast, by about as much as the profile says the
    # clock drops
    (table,) = (
        t for t in fit_kernels.tables([ROOT / "tests" / "data" / "gemm.csv"]) if t.gpu == gpu
    )
    hardware = fit_kernels.hardware_of(catalog.load("gpus", GpuSpec, gpu))
    values = shipped(gpu)
    clock = values[-1]
    values[-1] = 1.0
    long = table.large() & (table.time_s > 3e-3)
    ratio = fit_kernels.predicted_s(table, hardware, values)[long] / table.time_s[long]
    assert long.sum() >= 5
    assert float(np.median(ratio)) == pytest.approx(clock, abs=0.04)


def test_elementwise() -> None:
    # 3 GB at three quarters of 2 TB/s = 2 ms, and two kernels of 4 us
    time = elementwise_s(3e9, 2.0, memory_bytes_per_s=2e12, elementwise_frac=0.75, gap_s=4e-6)
    assert time == pytest.approx(2.008e-3)
    assert (
        elementwise_s(0.0, 0.0, memory_bytes_per_s=2e12, elementwise_frac=0.75, gap_s=4e-6) == 0.0
    )


@pytest.mark.parametrize(
    ("gpu", "shape", "compiled", "limit"),
    [
        ("h100-sxm5-80gb", plans.model(), False, 4e12),
        ("b200-sxm-180gb", plans.model(), False, 8e12),  # twice the bytes in flight
        ("b200-sxm-180gb", plans.expert_model(), False, 4e12),
        ("rtx5090", plans.model(), False, 4e12),  # of another architecture
        ("b200-sxm-180gb", plans.model(), True, 20e12),
    ],
)
def test_bytes_in_flight(gpu: str, shape: ModelSpec, compiled: bool, limit: float) -> None:
    stack = "torchtitan" if compiled else "nemo"
    plan = plans.plan(shape, gpus=8, gpu=gpu, software=stack, compile=compiled)
    assert float(machine(plan).elementwise_limit) == limit


def test_flash_attention() -> None:
    # 1.56 TFLOP at half of 312 TFLOP/s = 10 ms, one kernel of 5 us
    assert flash_attention_s(
        1.56e12, 1.0, rate_flop_per_s=312e12, attention_frac=0.5, gap_s=5e-6
    ) == pytest.approx(10.005e-3)


def test_attention_of_short_sequences_and_narrow_heads() -> None:
    # 500 tokens reach half of the rate; endless sequences of heads of 128 or wider all of it; 64 is
    # 0.5^0.15 = 0.901
    assert float(attention_shape_frac(500.0, 128.0)) == 0.5
    assert float(attention_shape_frac(1e9, 256.0)) == pytest.approx(1.0)
    assert float(attention_shape_frac(1e9, 64.0)) == pytest.approx(0.901, abs=1e-3)
    # Dao 2023 (arXiv 2307.08691), figure 4, causal, on A100: 91 TFLOP/s at 512 tokens, 189 at 16k
    ratio = float(attention_shape_frac(512.0, 128.0) / attention_shape_frac(16384.0, 128.0))
    assert ratio == pytest.approx(91 / 189, rel=0.1)


def test_attention_of_few_queries_leaves_multiprocessors_idle() -> None:
    # 4 sequences and heads of 512 tokens are 16 tiles of 128 queries, for 108 multiprocessors;
    # enough of them fill all
    assert float(filled_frac(4.0, 512.0, 1.0, 108.0)) == pytest.approx(16 / 108)
    assert float(filled_frac(400.0, 512.0, 1.0, 108.0)) == 1.0
    # eight ranks of a sequence of 512 tokens keep 64 queries each: half of a tile
    assert float(filled_frac(400.0, 512.0, 8.0, 108.0)) == 0.5
    # what a whole short sequence leaves of its tile is known by its length
    assert float(filled_frac(400.0, 64.0, 1.0, 108.0)) == 1.0


def test_launch_bound() -> None:
    # equal queues: a sixth root of two, 12 %, above either
    assert float(launch_bound_s(3e-3, 100.0, 30e-6)) == pytest.approx(3e-3 * 2 ** (1 / 6))
    # a queue that is far shorter does not count
    assert float(launch_bound_s(1.0, 30.0, 30e-6)) == pytest.approx(1.0, rel=1e-12)
    assert float(launch_bound_s(1e-9, 30.0, 30e-6)) == pytest.approx(0.9e-3, rel=1e-12)
    assert float(launch_bound_s(0.0, 0.0, 30e-6)) == pytest.approx(0.0, abs=1e-290)


def test_blocked_launches_add_to_what_the_gpu_computes() -> None:
    # 80 A100 of BigScience, 512 samples one by one: 91.04 TFLOP/s with CUDA_LAUNCH_BLOCKING=1 and
    # 97.20 without, which is 6.8 % of the step; 8 layers of a stage, 521 slots, 215 s
    extra = float(blocked_launch_s(215.0, 521 * 8 * (2 * 30 + 39.0), 44e-6)) / 215.0 - 1
    assert extra == pytest.approx(97.20 / 91.04 - 1, abs=0.03)
    assert float(blocked_launch_s(0.0, 30.0, 30e-6)) == pytest.approx(0.9e-3)
    assert float(blocked_launch_s(1.0, 0.0, 30e-6)) == 1.0


@given(gpu=st.floats(0, 1e3), operators=st.floats(0, 1e4), launch=st.floats(0, 1e-3))
def test_a_smooth_maximum_stays_near_the_maximum(
    gpu: float, operators: float, launch: float
) -> None:
    largest = max(gpu, operators * launch)
    assert (
        largest * (1 - 1e-12)
        <= float(launch_bound_s(gpu, operators, launch))
        <= 1.123 * largest + 1e-250
    )


def test_a_board_short_of_power_lowers_its_clock_by_the_cube_root() -> None:
    # 1 pJ x 1000 TFLOP/s = 1000 W wanted: 512 W are 0.8 cubed of it, 125 W a half
    clocks = power_limited_clock_frac(np.array([512.0, 125.0]), 1e15, 1e-12)
    assert clocks == pytest.approx([0.8, 0.5])
    assert float(
        power_limited_clock_frac(8 * 64.0, 1e15, 1e-12)
        / power_limited_clock_frac(64.0, 1e15, 1e-12)
    ) == pytest.approx(2)


@given(st.floats(1, 1e5), st.floats(1e12, 1e17), st.floats(1e-13, 1e-10))
def test_a_board_with_power_to_spare_runs_at_its_clock_and_never_above(
    power: float, rate: float, energy: float
) -> None:
    clock = float(power_limited_clock_frac(power, rate, energy))
    assert 0 < clock <= 1
    assert (clock == 1) == (np.cbrt(power / (energy * rate)) >= 1)
    assert float(power_limited_clock_frac(1.1 * power, rate, energy)) >= clock


@pytest.mark.parametrize(
    "gpu",
    [
        "v100-sxm2-32gb",
        "a100-sxm4-80gb",
        "h100-sxm5-80gb",
        "h100-sxm5-96gb",
        "b200-sxm-180gb",
        "gb200-186gb",
    ],
)
def test_the_power_law_gives_the_clocks_that_runs_need(gpu: str) -> None:
    """Parts of 300 to 1200 W with one energy per FLOP for each generation."""
    profile = plans.cluster(1, gpu).gpu
    law = law_of(profile)
    assert law == pytest.approx(float(profile.kernels.sustained_clock), abs=0.04)


def test_a_profile_that_names_the_law_ships_it() -> None:
    named = [
        g
        for g in catalog.load_all("gpus", GpuSpec)
        if g.kernels.sustained_clock.source.startswith("power law")
    ]
    assert named
    for gpu in named:  # two digits, and what the energies were rounded to since
        assert float(gpu.kernels.sustained_clock) == pytest.approx(law_of(gpu), abs=0.015), gpu.id


def test_an_energy_per_flop_is_a_sourced_number_and_falls_from_one_generation_to_the_next() -> None:
    volta, ampere, hopper = (float(ENERGY_PER_FLOP[name]) for name in ("volta", "ampere", "hopper"))
    assert volta > ampere > hopper
    assert all(
        number.unit == "J" and number.source and number.date for number in ENERGY_PER_FLOP.values()
    )
    assert law_of(plans.cluster(1, "mi300x-192gb").gpu) is None, "no run and no energy: no law"
    assert law_of(plans.cluster(1, "rtx4090").gpu) == 1, "power does not limit it"
