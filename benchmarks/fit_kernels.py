"""Fit the GEMM curve of a GPU (`[kernels]` of its profile) on tables of measured GEMM times, and
say how well it does.

    python benchmarks/fit_kernels.py FOLDER [--seed 0] [--toml]

FOLDER holds one CSV per GPU id with the columns gpu, m, n, k, dtype, time_us, library. Each (GPU,
library) is one table: half of its rows, drawn at random, is fitted; errors are measured on the
other half. The formula is the planner's own, `planner.formulas.kernels.gemm_s`; a least-squares fit
of the log error, in which shapes that no training runs count half.

A GEMM table has a clock of its own. aiconfigurator times a graph of up to six GEMMs, replayed
nine times (three of them to warm up), so a short GEMM is over before the power limit acts and a
long one is not: above about a millisecond the rate of large GEMMs drops by 5 to 20 % within a
factor of two of duration. `power_clock` is the clock left; the duration at which half of the drop
has come belongs to the way the tables were measured and is one constant for all (fitted per table:
0.9 to 1.4 ms). gemm_efficiency is therefore the rate of short GEMMs. Training is a steady stream:
it gets power_clock, and less.

Tables of GEMMs in 8 and 4 bit (dtype fp8, fp8_block, nvfp4; aiconfigurator's TensorRT-LLM tables,
whose kernels are cuBLASLt's as in Transformer Engine, and DeepGEMM's for blocks) time the dynamic
quantisation of the activations with the GEMM. Everything but the rate is as in 16 bit; fitted are
the efficiency (fp8_efficiency, nvfp4_efficiency), the clock of long GEMMs, and bytes per element
and fixed time of the quantisation, which no estimate reads: training casts otherwise.

Prints one line per table, a parameter on a bound marked with *; with --toml the lines of [kernels]
of 16-bit tables as well. Writes nothing.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from planner.formulas.kernels import gemm_s
from planner.inputs import catalog
from planner.specs.hardware import GpuSpec

SMALLEST_TRAINED = (512, 128, 128)  # m, n, k
OTHER_WEIGHT = 0.5  # of shapes that no training runs
POWER_AFTER_S = (
    1.2e-3  # duration of a GEMM in a table at which half of the drop of the clock has come
)
POWER_STEEPNESS = 4.0  # of that drop over duration

# a GEMM too small to show anything but the fixed time of a kernel
SMALL_BYTES, SMALL_FLOP = 4e5, 2e8

# name, unit, lower bound, start, upper bound
PARAMETERS = (
    ("gemm_efficiency", "1", 0.30, 0.85, 1.20),
    ("gemm_tile_exponent", "1", 0.00, 0.04, 0.40),
    ("gemm_tile_overhead", "us", 0.0, 2.0, 12.0),
    ("gemm_wave_softness", "1", 0.0, 0.5, 1.0),
    ("gemm_launch", "us", 0.0, 2.0, 8.0),
    ("memory_frac", "1", 0.40, 0.80, 1.00),
    ("power_clock", "1", 0.50, 0.90, 1.00),
)
LOW, START, HIGH = (np.array([row[column] for row in PARAMETERS], float) for column in (2, 3, 4))
LOW_PARAMETERS = (
    ("efficiency", "1", 0.10, 0.60, 1.20),
    ("quantisation", "B", 0.0, 4.0, 12.0),  # moved per element of the activations
    ("quantisation", "us", -2.0, 3.0, 30.0),  # and fixed
    ("power_clock", "1", 0.50, 0.95, 1.00),
)
# field of the profile's rates, and bytes per element of an operand with its scales
FORMATS = {
    "fp8": ("fp8", 1.0),
    "fp8_block": ("fp8", 1 + 1 / 32),
    "nvfp4": ("nvfp4", 1 / 2 + 1 / 16),
}
LARGE_WEIGHT = 1.5  # of m, n, k >= 1024, which the rate decides
OVERHEAD, SOFTNESS = 2, 3  # the minimum over tiles makes small valleys: several starts along these


class Table(NamedTuple):
    """GEMM shapes (batch 1) and their measured times of one library on one GPU."""

    gpu: str
    library: str
    dtype: str
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    time_s: np.ndarray

    def part(self, rows: np.ndarray) -> Table:
        return self._replace(
            m=self.m[rows], n=self.n[rows], k=self.k[rows], time_s=self.time_s[rows]
        )

    def trained(self) -> np.ndarray:
        """Rows whose shape a training run could have."""
        m, n, k = SMALLEST_TRAINED
        return (self.m >= m) & (self.n >= n) & (self.k >= k)

    def large(self) -> np.ndarray:
        return np.minimum(np.minimum(self.m, self.n), self.k) >= 1024


def tables(paths: list[Path]) -> Iterator[Table]:
    """Read CSV files, one table per (GPU, library, dtype)."""
    rows: dict[tuple[str, str, str], list[tuple[float, float, float, float]]] = defaultdict(list)
    for path in paths:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                m, n, k = float(row["m"]), float(row["n"]), float(row["k"])
                rows[row["gpu"], row["library"], row["dtype"]].append(
                    (m, n, k, float(row["time_us"]) * 1e-6)
                )
    for (gpu, library, dtype), values in rows.items():
        m, n, k, time_s = np.array(values).T
        yield Table(gpu, library, dtype, m, n, k, time_s)


def predicted_s(table: Table, hardware: dict[str, float], values: np.ndarray) -> np.ndarray:
    """Seconds of each GEMM as its table would show it: gemm_s at the clock that a GEMM of this
    duration gets."""
    efficiency, exponent, overhead_us, softness, launch_us, memory, clock = values
    rate = hardware["rate_flop_per_s"]
    curve: dict[str, Any] = {
        "compute_units": hardware["compute_units"],
        "efficiency": efficiency,
        "tile_exponent": exponent,
        "tile_overhead_s": overhead_us * 1e-6,
        "wave_softness": softness,
        "launch_s": launch_us * 1e-6,
        "memory_bytes_per_s": hardware["memory_bytes_per_s"],
        "memory_frac": memory,
    }
    return _limited_s(table, rate, clock, curve)


def _limited_s(table: Table, rate: float, clock: float, curve: dict[str, Any]) -> np.ndarray:
    short = gemm_s(table.m, table.n, table.k, rate_flop_per_s=rate, **curve)
    limited = 1 / (1 + (POWER_AFTER_S / short) ** POWER_STEEPNESS)
    left = rate * (1 - (1 - clock) * limited)
    return np.asarray(gemm_s(table.m, table.n, table.k, rate_flop_per_s=left, **curve))


def predicted_low_s(table: Table, gpu: GpuSpec, values: np.ndarray) -> np.ndarray:
    """Seconds of each GEMM in 8 or 4 bit as its table would show it: with the quantisation of its
    activations."""
    efficiency, moved, fixed_us, clock = values
    name, operand_bytes = FORMATS[table.dtype]
    rate, bandwidth = gpu.rate(name), float(gpu.memory_bandwidth)
    assert rate is not None, f"{gpu.id} has no {name}"
    curve = {
        "compute_units": float(gpu.compute_units),
        "efficiency": efficiency,
        "tile_exponent": float(gpu.kernels.gemm_tile_exponent),
        "tile_overhead_s": float(gpu.kernels.gemm_tile_overhead),
        "wave_softness": float(gpu.kernels.gemm_wave_softness),
        "launch_s": float(gpu.kernels.gemm_launch),
        "memory_bytes_per_s": bandwidth,
        "memory_frac": float(gpu.kernels.memory_frac),
        "input_bytes": operand_bytes,
    }
    quantised = moved * table.m * table.k / bandwidth + fixed_us * 1e-6
    return _limited_s(table, float(rate), clock, curve) + quantised


def fit_low(table: Table, gpu: GpuSpec) -> np.ndarray:
    """Least squares of the log error of a table of 8 or 4 bit, as for the 16-bit ones."""
    from scipy.optimize import least_squares

    low, start, high = (
        np.array([row[column] for row in LOW_PARAMETERS], float) for column in (2, 3, 4)
    )
    weight = np.where(table.trained(), 1.0, OTHER_WEIGHT)
    weight *= np.where(table.large(), LARGE_WEIGHT, 1.0)

    def residual(values: np.ndarray) -> np.ndarray:
        return np.asarray(weight * np.log(predicted_low_s(table, gpu, values) / table.time_s))

    solution = least_squares(residual, start, bounds=(low, high), loss="soft_l1", f_scale=0.1)
    return np.asarray(solution.x)


def hardware_of(gpu: GpuSpec) -> dict[str, float]:
    """Vendor numbers of a GPU that the formula needs."""
    rate = gpu.rate("bf16")
    assert rate is not None, f"{gpu.id} has no bf16"
    return {
        "rate_flop_per_s": float(rate),
        "compute_units": float(gpu.compute_units),
        "memory_bytes_per_s": float(gpu.memory_bandwidth),
    }


def fit(table: Table, hardware: dict[str, float]) -> np.ndarray:
    """Least squares of the log error; soft-L1 so that outliers of a table do not decide."""
    from scipy.optimize import least_squares

    weight = np.where(table.trained(), 1.0, OTHER_WEIGHT)

    def residual(values: np.ndarray) -> np.ndarray:
        return np.asarray(weight * np.log(predicted_s(table, hardware, values) / table.time_s))

    best = None
    for overhead_us in (2.0, 0.5, 5.0):
        for softness in (0.2, 0.9):
            start = START.copy()
            start[OVERHEAD], start[SOFTNESS] = overhead_us, softness
            solution = least_squares(
                residual, start, bounds=(LOW, HIGH), loss="soft_l1", f_scale=0.1, x_scale=HIGH
            )
            if best is None or solution.cost < best.cost:
                best = solution
    assert best is not None
    return np.asarray(best.x)


def kernel_floor_s(table: Table) -> float:
    """Fixed time of a kernel of a replayed graph (`kernel_gap`): the tenth percentile of GEMMs
    that do next to nothing."""
    m, n, k = table.m, table.n, table.k
    small = (2 * (m * k + n * k + m * n) < SMALL_BYTES) & (2 * m * n * k < SMALL_FLOP)
    return float(np.quantile(table.time_s[small], 0.1))


def error_text(predicted: np.ndarray, measured: np.ndarray) -> str:
    """Mean and median absolute percentage error and the bias, of n rows."""
    if not len(measured):
        return "no rows"
    relative = predicted / measured - 1.0
    size = np.abs(relative)
    return (
        f"{100 * size.mean():5.1f} {100 * np.median(size):5.1f} {100 * relative.mean():+5.1f}"
        f" ({len(measured)})"
    )


def shown(values: np.ndarray) -> str:
    """Fitted values, a star on those within a hundredth of a bound's range."""
    at_bound = np.minimum(values - LOW, HIGH - values) < 0.01 * (HIGH - LOW)
    return ", ".join(
        f"{value:.3g}{'*' if bound else ''}" for value, bound in zip(values, at_bound, strict=True)
    )


def toml(table: Table, values: np.ndarray, error: float) -> str:
    """Lines of [kernels]."""
    source = (
        f"fitted on half of the {table.library} GEMM table; held-out error {100 * error:.1f} %"
        " where m, n, k >= 1024"
    )
    lines = []
    for (name, unit, *_), value in zip(PARAMETERS, values, strict=True):
        number = f'"{value:.3g} us"' if unit == "us" else f"{value:.3g}"
        lines.append(
            f'{name} = {{ value = {number}, kind = "measured", source = "{source}", date ='
            ' "2026-11" }'
        )
    floor = f"GEMMs of less than 0.4 MB in the {table.library} GEMM table, tenth percentile"
    number = f'"{1e6 * kernel_floor_s(table):.2g} us"'
    lines.append(
        f'kernel_gap = {{ value = {number}, kind = "measured", source = "{floor}", date ='
        ' "2026-11" }'
    )
    return "\n".join(lines)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--toml", action="store_true")
    options = arguments.parse_args()
    print(
        "table | "
        + ", ".join(name for name, *_ in PARAMETERS)
        + " | held-out MAPE, median, bias % (rows): ",
        end="",
    )
    print("all; as trained; m, n, k >= 1024")
    for table in tables(sorted(options.folder.glob("*.csv"))):
        gpu = catalog.load("gpus", GpuSpec, table.gpu)
        first = np.random.default_rng(options.seed).random(len(table.m)) < 0.5
        low = table.dtype in FORMATS
        if low:
            values = fit_low(table.part(first), gpu)
            predicted = predicted_low_s(table, gpu, values)
            numbers = ", ".join(f"{value:.3g}" for value in values)
        else:
            values = fit(table.part(first), hardware_of(gpu))
            predicted = predicted_s(table, hardware_of(gpu), values)
            numbers = shown(values)
        groups = (~first, ~first & table.trained(), ~first & table.large())
        report = "; ".join(error_text(predicted[group], table.time_s[group]) for group in groups)
        print(f"{table.gpu} {table.dtype} {table.library} | {numbers} | {report}")
        if options.toml and not low:
            large = groups[-1]
            print(
                toml(
                    table, values, float(np.abs(predicted[large] / table.time_s[large] - 1).mean())
                )
            )


if __name__ == "__main__":
    main()
