"""Fit the rates of mixers of tokens (`planner/estimate/machine/mixers.py`) on tables of measured
times, and say how well they do.

    python benchmarks/fit_mixers.py FOLDER

FOLDER holds CSV files with the columns gpu, operation, kernel, library, batch, seq, heads, groups,
key_width, value_width, chunk, time_us: forward passes of chunked linear attention in 16 bit, timed
as replayed CUDA graphs. Operations: gated_delta, kda, mamba2_scan. Each (operation, kernel,
library, architecture) is one table; every second row of a GPU, by shape, is fitted, errors are
of the other rows. The formula is the planner's own, `formulas.kernels.mixer_s`. Rows of few
tokens, and on GPUs with a cache of 96 MB and more those whose tensors stay in it, are left out:
training has more.

Prints one line per table and GPU. Writes nothing.
"""

from __future__ import annotations

import argparse
import csv
import functools
from collections import defaultdict
from pathlib import Path

import numpy as np

from planner.estimate.machine.mixers import CHAINS
from planner.formulas.kernels import mixer_s, mixer_work_s
from planner.inputs import catalog
from planner.specs.hardware import GpuSpec

LEAST_SEQ, LEAST_TOKENS = 256, 1024
LARGE_CACHE = ("ada", "blackwell-geforce")
LEAST_BYTES = 5e8  # moved, on those
STREAM_FRAC = 0.88  # as estimate.machine.kernels: of long copies
ELEMENT_BYTES = 2.0
COLUMNS = ("batch", "seq", "heads", "groups", "key_width", "value_width", "chunk", "time_us")

Row = tuple[float, ...]


@functools.cache
def profile(gpu: str) -> GpuSpec:
    """Profile of a GPU by id."""
    return catalog.load("gpus", GpuSpec, gpu)


def tables(folder: Path) -> dict[tuple[str, str, str, str], dict[str, list[Row]]]:
    """Rows by (operation, kernel, library, architecture) and GPU, sorted by shape."""
    by_kernel: dict[tuple[str, str, str, str], dict[str, list[Row]]] = defaultdict(dict)
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row.get("operation") not in CHAINS:
                    continue
                architecture = profile(row["gpu"]).architecture
                name = (row["operation"], row["kernel"], row["library"], architecture)
                values = tuple(float(row[column]) for column in COLUMNS)
                by_kernel[name].setdefault(row["gpu"], []).append(values)
    for by_gpu in by_kernel.values():
        for rows in by_gpu.values():
            rows.sort(key=lambda row: (*row[2:], *row[:2]))
    return by_kernel


def work(operation: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """FLOP, and bytes of inputs and outputs, as the parts of a layer count them."""
    batch, seq, heads, groups, key, value, chunk, _ = rows.T
    if operation == "mamba2_scan":  # key: width of the state, value: of a head
        inside = chunk * (groups * key + heads * value)
        flop = 2 * (inside + 2 * heads * value * key)
        moved = 2 * heads * value + 2 * groups * key + heads
    else:
        flop = 2 * heads * (chunk * (3 * key + 2 * value) + 3 * key * value)
        keys, values = groups * key, heads * value
        gates = keys if operation == "kda" else heads
        moved = 2 * keys + 2 * values + gates + heads
    return batch * seq * flop, ELEMENT_BYTES * batch * seq * moved


def kept(operation: str, gpu: GpuSpec, listed: list[Row]) -> np.ndarray:
    """Rows of the size of training."""
    rows = np.array(listed)
    large = (rows[:, 1] >= LEAST_SEQ) & (rows[:, 0] * rows[:, 1] >= LEAST_TOKENS)
    if gpu.architecture in LARGE_CACHE:
        large &= work(operation, rows)[1] * CHAINS[operation].traffic >= LEAST_BYTES
    return rows[large]


def predicted_s(
    operation: str, gpu: GpuSpec, rows: np.ndarray, share: float, step_us: float
) -> np.ndarray:
    """Seconds of each row."""
    chain = CHAINS[operation]
    flop, moved = work(operation, rows)
    bandwidth = float(gpu.memory_bandwidth) * STREAM_FRAC
    done = mixer_work_s(flop, moved * chain.traffic, float(gpu.dense.fp32) * share, bandwidth)
    waiting = np.ceil(rows[:, 1] / rows[:, 6]) * step_us * 1e-6
    gap = float(gpu.kernels.kernel_gap)
    return np.asarray(mixer_s(done, waiting, chain.kernels, ordered_frac=chain.ordered, gap_s=gap))


def main() -> None:
    from scipy.optimize import least_squares

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    for (operation, kernel, library, architecture), by_gpu in sorted(
        tables(given.folder).items(), key=lambda item: item[0]
    ):
        rows = {gpu: kept(operation, profile(gpu), listed) for gpu, listed in by_gpu.items()}
        rows = {gpu: listed for gpu, listed in rows.items() if len(listed) > 1}
        if not rows:
            continue

        def residual(
            values: np.ndarray, operation: str = operation, rows: dict = rows
        ) -> np.ndarray:
            logs = [
                np.log(
                    predicted_s(operation, profile(gpu), part[::2], *values)
                    / (part[::2, -1] * 1e-6)
                )
                for gpu, part in rows.items()
            ]
            return np.concatenate(logs)

        solution = least_squares(
            residual, (2.0, 1.5), bounds=((0.05, 0.0), (40.0, 20.0)), loss="soft_l1", f_scale=0.1
        )
        for gpu, part in rows.items():
            other = part[1::2]
            error = (
                predicted_s(operation, profile(gpu), other, *solution.x) / (other[:, -1] * 1e-6) - 1
            )
            print(
                f"{operation:12s} {kernel:34s} {library:18s} {architecture:18s} share"
                f" {solution.x[0]:6.3f} step {solution.x[1]:5.2f} us | {gpu:16s} {len(other):4d}"
                f" rows: mean {100 * np.abs(error).mean():4.1f} %,"
                f" bias {100 * error.mean():+5.1f} %"
            )


if __name__ == "__main__":
    main()
