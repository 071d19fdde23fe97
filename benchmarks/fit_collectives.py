"""Fit the time of collectives inside a node (`latency`, `ramp`, `*_frac` of a link profile) on measured tables.

    python benchmarks/fit_collectives.py TABLE.csv [--base] [--smallest 1] [--seed 0]

TABLE.csv has the columns gpu, nodes, ranks, intra_node, collective, bytes (whole tensor), time_us, note. All rows of
one link are one fit: least squares of log(predicted / measured) on a random half of the rows; errors are those of the
other half. With --base the time gets one constant more, paid once per call. Prints tables; writes nothing.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

from planner import catalog
from planner.specs.hardware import LinkSpec

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
PASSES = np.array([2.0, 1.0, 1.0])  # an all-reduce is a reduce-scatter and an all-gather

NAMES = (
    "latency_us", "ramp_ns", "all_reduce_frac", "all_gather_frac", "reduce_scatter_frac", "two_rank_frac",
    "switch_all_reduce_frac", "base_us",
)  # fmt: skip
START = (2.0, 5.0, 0.8, 0.8, 0.8, 0.9, 1.0, 3.0)
LOW = (0.0, 0.0, 0.02, 0.02, 0.02, 0.2, 0.1, 0.0)
HIGH = (20.0, 60.0, 1.4, 1.4, 1.4, 1.5, 1.5, 30.0)


class Table(NamedTuple):
    """Calls of one link: collective, ranks, bytes of the whole tensor, seconds, and whether the switch reduced."""

    collective: np.ndarray
    ranks: np.ndarray
    size_bytes: np.ndarray
    time_s: np.ndarray
    in_switch: np.ndarray


def read(path: Path, link: LinkSpec, smallest_bytes: float) -> Table:
    """Rows of one node over this link. Rows whose size convention is doubtful are left out."""
    rows = []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            known = row["collective"] in COLLECTIVES and row["bytes"] and float(row["time_us"] or 0) > 0
            if row["nodes"] != "1" or row["intra_node"] != link.id or not known or "may be per rank" in row["note"]:
                continue
            if float(row["bytes"]) < smallest_bytes:
                continue
            kind, ranks = COLLECTIVES.index(row["collective"]), int(row["ranks"])
            switched = link.switch_minimum_ranks is not None and ranks >= link.switch_minimum_ranks
            in_switch = switched and kind == 0 and "NVLS off" not in row["note"]
            rows.append((kind, ranks, float(row["bytes"]), float(row["time_us"]) * 1e-6, in_switch))
    kind, ranks, size, time, in_switch = np.array(rows, float).reshape(-1, 5).T
    return Table(kind.astype(int), ranks, size, time, in_switch > 0)


def collective_s(values: np.ndarray, table: Table, bandwidth: float) -> np.ndarray:
    """Seconds of each call: latency per rank, volume over the achieved bandwidth, and the slow ramp of middle sizes."""
    latency_us, ramp_ns, reduce_frac, gather_frac, scatter_frac, two_rank_frac, switch_frac, base_us = values
    passes = PASSES[table.collective]
    frac = np.array([reduce_frac, gather_frac, scatter_frac])[table.collective]
    frac = np.where(table.ranks == 2, frac * two_rank_frac, frac)
    frac = np.where(table.in_switch, switch_frac, frac)
    volume = passes * (table.ranks - 1) / table.ranks * table.size_bytes
    latency_s = base_us * 1e-6 + passes / 2 * latency_us * 1e-6 * table.ranks
    return latency_s + volume / (bandwidth * frac) + ramp_ns * 1e-9 * np.sqrt(table.size_bytes)


def fit(table: Table, rows: np.ndarray, bandwidth: float, with_base: bool) -> np.ndarray:
    """Least squares of the log error over the given rows; soft-L1 so that outliers of a table do not decide."""
    from scipy.optimize import least_squares

    part = Table(*(column[rows] for column in table))
    high = np.array(HIGH)
    high[-1] = HIGH[-1] if with_base else 1e-9
    start = np.minimum(START, high / 2)

    def residual(values: np.ndarray) -> np.ndarray:
        return np.log(collective_s(values, part, bandwidth) / part.time_s)

    return np.asarray(least_squares(residual, start, bounds=(LOW, high), loss="soft_l1", f_scale=0.1, x_scale=high).x)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("table", type=Path)
    arguments.add_argument("--base", action="store_true", help="add a constant per call")
    arguments.add_argument("--smallest", type=float, default=1.0, help="bytes below which rows are left out")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    for link in catalog.load_all("networks", LinkSpec):
        table = read(options.table, link, options.smallest)
        if link.scope != "intra_node" or len(table.time_s) < 20:
            continue
        first = np.random.default_rng(options.seed).random(len(table.time_s)) < 0.5
        values = fit(table, first, float(link.bandwidth), options.base)
        error = np.abs(collective_s(values, table, float(link.bandwidth)) / table.time_s - 1.0)
        print(f"{link.id}: " + ", ".join(f"{name} {value:.3g}" for name, value in zip(NAMES, values, strict=True)))
        groups = {name: table.collective == index for index, name in enumerate(COLLECTIVES)}
        groups |= {">= 1 MB": table.size_bytes >= 1e6, "all": table.ranks > 0}
        groups |= {f"{n:.0f} ranks": table.ranks == n for n in np.unique(table.ranks)}
        held_out = {name: error[~first & rows] for name, rows in groups.items()}
        shown = [
            f"{name} {100 * values.mean():.1f}/{100 * np.median(values):.1f} ({len(values)})"
            for name, values in held_out.items()
            if len(values)
        ]
        print("    held-out MAPE/median % (rows): " + ", ".join(shown))


if __name__ == "__main__":
    main()
