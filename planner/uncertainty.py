"""How sure an answer is: the spread of measured over predicted step time of the validated runs most like it."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from planner.specs.plan import Plan

RESIDUALS = Path(__file__).parent / "data" / "residuals.csv"

_ENOUGH = 6  # runs; fewer say little about a spread
_PER_DOUBLING = 0.125  # the band widens by this share of itself for every doubling beyond the largest validated cluster
_UNKNOWN = 0.30  # half width of the band where nothing alike was ever validated


@dataclass(frozen=True)
class Band:
    """Factors on the expected step time that bracket 80 % of the runs alike, and what the band rests on."""

    low: float
    high: float
    basis: str
    runs: int


@dataclass(frozen=True)
class _Run:
    gpu: str
    stack: str
    gpus: int
    ratio: float  # measured over predicted step time


@cache
def _residuals() -> tuple[_Run, ...]:
    if not RESIDUALS.exists():
        return ()
    with RESIDUALS.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        names = next(rows)
        at = [names.index(name) for name in ("gpu", "stack", "gpus", "measured_over_predicted")]
        return tuple(_Run(row[at[0]], row[at[1]], int(row[at[2]]), float(row[at[3]])) for row in rows)


def _quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def band(plan: Plan) -> Band:
    """Band of this plan's step time: runs on the same GPU with the same stack, else the same GPU, else the same stack.

    It widens with each step away from those runs, and with each doubling beyond the largest cluster among them.
    """
    gpu, stack, gpus = plan.cluster.gpu.id, plan.stack.id, plan.cluster.gpus
    choices: tuple[tuple[str, Callable[[_Run], bool], float], ...] = (
        (f"on {gpu} with {stack}", lambda r: r.gpu == gpu and r.stack == stack, 1.0),
        (f"on {gpu}, other software", lambda r: r.gpu == gpu, 1.25),
        (f"with {stack}, other GPUs", lambda r: r.stack == stack, 1.5),
    )
    for text, alike, widen in choices:
        runs = [run for run in _residuals() if alike(run)]
        if len(runs) >= _ENOUGH:
            ratios = [run.ratio for run in runs]
            largest = max(run.gpus for run in runs)
            beyond = math.log2(gpus / largest) if gpus > largest else 0.0
            error = _quantile([abs(1 / r - 1) for r in ratios], 0.5)
            power = widen * (1 + _PER_DOUBLING * beyond)
            low, high = min(1.0, _quantile(ratios, 0.1)) ** power, max(1.0, _quantile(ratios, 0.9)) ** power
            scale = f", none on more than {largest} GPUs" if beyond else ""
            return Band(low, high, f"{len(runs)} validated runs {text}, median error {error:.1%}{scale}", len(runs))
    return Band(1 - _UNKNOWN, 1 + _UNKNOWN, f"no validated run on {gpu} or with {stack}: +-{_UNKNOWN:.0%}", 0)
