"""Fit the GEMM curve of a GPU (`[kernels]` of its profile) on tables of measured GEMM times, and say how well it does.

    python benchmarks/fit_kernels.py FOLDER [--seed 0]

FOLDER holds one CSV per GPU id with the columns gpu, m, n, k, dtype, time_us, library. Each (GPU, library) is one
table: half of its rows, drawn at random, is fitted; errors are those of the other half. memory_frac is the median share
of the memory bandwidth that large GEMMs bound by memory reach; the rest is a least-squares fit of the log error on the
shapes that training runs (m >= 512 tokens, n and k >= 128). Prints one line per table; writes nothing.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from planner import catalog
from planner.specs.hardware import GpuSpec

TILES = np.array([(256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64)], float)
LARGEST_TILE = 256 * 128
K_STEP = 32  # a tile advances in steps of 32 along k
BYTES_PER_ELEMENT = 2.0
SMALLEST_TRAINED = (512, 128, 128)  # m, n, k
LARGE_BYTES = 1e8  # traffic that drowns a launch

NAMES = ("efficiency", "exponent", "overhead_us", "softness", "launch_us")
START = (0.85, 0.04, 2.0, 0.5, 2.0)
LOW = (0.30, 0.00, 0.0, 0.0, 0.0)
HIGH = (1.20, 0.40, 12.0, 1.0, 8.0)


class Table(NamedTuple):
    """GEMM shapes (batch 1) and their measured times of one library on one GPU."""

    gpu: str
    library: str
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    time_s: np.ndarray


def tables(folder: Path) -> Iterator[Table]:
    """Read every CSV of the folder, one table per (GPU, library)."""
    rows: dict[tuple[str, str], list[tuple[float, float, float, float]]] = defaultdict(list)
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                m, n, k = float(row["m"]), float(row["n"]), float(row["k"])
                rows[row["gpu"], row["library"]].append((m, n, k, float(row["time_us"]) * 1e-6))
    for (gpu, library), values in rows.items():
        m, n, k, time_s = np.array(values).T
        yield Table(gpu, library, m, n, k, time_s)


def traffic_bytes(table: Table) -> np.ndarray:
    """Bytes of both inputs and the output, each moved once."""
    return BYTES_PER_ELEMENT * (table.m * table.k + table.n * table.k + table.m * table.n)


def memory_frac(table: Table, rows: np.ndarray, rate: float, hbm: float) -> float:
    """Median share of the memory bandwidth reached by large GEMMs whose traffic takes 1.5 times their arithmetic."""
    traffic = traffic_bytes(table)
    bound = rows & (traffic > LARGE_BYTES) & (traffic / hbm > 1.5 * 2.0 * table.m * table.n * table.k / rate)
    return float(np.median(traffic[bound] / table.time_s[bound] / hbm))


def gemm_s(values: np.ndarray, table: Table, units: float, rate: float, memory: float) -> np.ndarray:
    """Seconds of each GEMM: the fastest tile shape in waves over the units, or the memory traffic, plus a launch."""
    efficiency, exponent, overhead_us, softness, launch_us = values
    bm, bn = TILES.T
    m, n, k = table.m[:, None], table.n[:, None], table.k[:, None]
    tiles = np.ceil(m / bm) * np.ceil(n / bn)
    waves = softness * np.maximum(tiles / units, 1.0) + (1.0 - softness) * np.ceil(tiles / units)
    tile_flop = 2.0 * bm * bn * np.ceil(k / K_STEP) * K_STEP
    tile_rate = rate / units * efficiency * (bm * bn / LARGEST_TILE) ** exponent
    math_s = (waves * (tile_flop / tile_rate + overhead_us * 1e-6)).min(axis=1)
    return np.maximum(math_s, traffic_bytes(table) / memory) + launch_us * 1e-6


def fit(table: Table, rows: np.ndarray, units: float, rate: float, memory: float) -> np.ndarray:
    """Least squares of the log error over the given rows; soft-L1 so that outliers of a table do not decide."""
    from scipy.optimize import least_squares

    part = Table(table.gpu, table.library, table.m[rows], table.n[rows], table.k[rows], table.time_s[rows])

    def residual(values: np.ndarray) -> np.ndarray:
        return np.log(gemm_s(values, part, units, rate, memory) / part.time_s)

    best = None
    for overhead_us in (START[2], 0.5, 6.0):  # the minimum over tiles makes small valleys
        start = np.array(START)
        start[2] = overhead_us
        found = least_squares(residual, start, bounds=(LOW, HIGH), loss="soft_l1", f_scale=0.1, x_scale=np.array(HIGH))
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None
    return np.asarray(best.x)


def errors(predicted: np.ndarray, measured: np.ndarray) -> str:
    """Mean and median absolute percentage error and the bias, of n rows."""
    if not len(measured):
        return "no rows"
    relative = predicted / measured - 1.0
    size = np.abs(relative)
    return f"{100 * size.mean():5.1f} {100 * np.median(size):5.1f} {100 * relative.mean():+5.1f} ({len(measured)})"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    print("table | " + ", ".join((*NAMES, "memory_frac")) + " | held-out MAPE, median, bias % (rows): ", end="")
    print("all; as trained; m, n, k >= 1024")
    for table in tables(options.folder):
        gpu = catalog.load("gpus", GpuSpec, table.gpu)
        rate = gpu.rate("bf16")
        assert rate is not None, f"{gpu.id} has no bf16"
        first = np.random.default_rng(options.seed).random(len(table.m)) < 0.5
        smallest = np.minimum(np.minimum(table.m, table.n), table.k)
        trained = (table.m >= SMALLEST_TRAINED[0]) & (table.n >= SMALLEST_TRAINED[1]) & (table.k >= SMALLEST_TRAINED[2])
        share = memory_frac(table, first, float(rate), float(gpu.memory_bandwidth))
        hardware = (float(gpu.compute_units), float(rate), share * float(gpu.memory_bandwidth))
        values = fit(table, first & trained, *hardware)
        predicted = gemm_s(values, table, *hardware)
        shown = ", ".join(f"{value:.3g}" for value in (*values, share))
        groups = (~first, ~first & trained, ~first & (smallest >= 1024))
        report = "; ".join(errors(predicted[group], table.time_s[group]) for group in groups)
        print(f"{table.gpu} {table.library} | {shown} | {report}")


if __name__ == "__main__":
    main()
