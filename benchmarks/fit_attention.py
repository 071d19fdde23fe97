"""Fit the curve of an attention kernel (`[kernels.attention.NAME]` of a GPU profile) on tables of
measured times, and say how well it does.

    python benchmarks/fit_attention.py FOLDER [--seed 0]

FOLDER holds CSV files with the columns gpu, kernel, way (forward, backward), batch, heads, seq,
width, time_us, of 16-bit causal attention over whole sequences. Each (GPU, kernel, way) is one
table: half of its rows, drawn at random, is fitted; errors are measured on the other half, over all
of it and from 8k tokens on. The formula is the planner's own,
`formulas.kernels.attention_shape_frac`; a least-squares fit of the log error. Rows whose blocks of
128 queries do not fill the GPU twice are
left out: training has many.

Prints one line per table. Writes nothing.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

from planner.formulas.flops import attention_forward_flop, causal_pairs
from planner.formulas.kernels import attention_shape_frac
from planner.inputs import catalog
from planner.specs.hardware import GpuSpec

LEAST_TOKENS, LONG_TOKENS = 512, 8192
QUERIES = 128  # of a thread block
BACKWARD_FLOP = 2.5  # over forward, as in estimate/layer/attention.py
# share of the dense rate, tokens at half of it, exponent of the width, us of a launch: lower bound,
# start, upper bound
BOUNDS = ((0.01, 0.5, 1.0), (0.0, 500.0, 5000.0), (1e-3, 0.2, 1.0), (0.0, 10.0, 40.0))
LOW, START, HIGH = np.array(BOUNDS).T

Rows = list[tuple[float, float, float, float]]  # heads of the whole batch, tokens, width, seconds


def tables(folder: Path) -> dict[tuple[str, str, str], Rows]:
    """Rows by (GPU, kernel, way)."""
    by_kernel: dict[tuple[str, str, str], Rows] = defaultdict(list)
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                heads = float(row["batch"]) * float(row["heads"])
                values = (
                    heads,
                    float(row["seq"]),
                    float(row["width"]),
                    float(row["time_us"]) * 1e-6,
                )
                by_kernel[row["gpu"], row["kernel"], row["way"]].append(values)
    return by_kernel


def predicted_s(rows: np.ndarray, values: np.ndarray, rate: float, way: str) -> np.ndarray:
    """Seconds of each row; columns of rows as in Rows."""
    heads, seq, width, _ = rows.T
    share, half, exponent, launch_us = values
    flop = attention_forward_flop(causal_pairs(seq, seq) * heads, 1.0, width, width)
    flop = flop * (BACKWARD_FLOP if way == "backward" else 1.0)
    shape = attention_shape_frac(seq, width, max(half, 1e-9), exponent)
    return np.asarray(flop / (rate * share * shape) + launch_us * 1e-6)


def main() -> None:
    from scipy.optimize import least_squares

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for (name, kernel, way), listed in sorted(tables(given.folder).items()):
        gpu = catalog.load("gpus", GpuSpec, name)
        rate = float(gpu.rate("bf16") or gpu.dense.fp32)
        rows = np.array(listed)
        blocks = rows[:, 0] * np.ceil(rows[:, 1] / QUERIES)
        rows = rows[(rows[:, 1] >= LEAST_TOKENS) & (blocks >= 2 * gpu.compute_units)]
        mine = np.random.default_rng(given.seed).random(len(rows)) < 0.5
        fitted, other = rows[mine], rows[~mine]

        def residual(
            values: np.ndarray, rows: np.ndarray = fitted, rate: float = rate, way: str = way
        ) -> np.ndarray:
            return np.asarray(np.log(predicted_s(rows, values, rate, way) / rows[:, 3]))

        solution = least_squares(residual, START, bounds=(LOW, HIGH), loss="soft_l1", f_scale=0.05)
        error = predicted_s(other, solution.x, rate, way) / other[:, 3] - 1
        long = error[other[:, 1] >= LONG_TOKENS]
        share, half, exponent, launch_us = solution.x
        print(
            f"{name:20s} {kernel:24s} {way:8s} {len(rows):6d} rows  share {share:.3f}  half"
            f" {half:5.0f} tokens  width {exponent:.2f}  launch {launch_us:4.1f} us  other half:"
            f" mean {100 * np.abs(error).mean():.1f} %, from 8k {100 * np.abs(long).mean():.1f} %"
        )


if __name__ == "__main__":
    main()
