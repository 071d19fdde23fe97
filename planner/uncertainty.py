"""How sure an answer is: the spread of measured over predicted step time of the validated runs most like it."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from planner.specs.plan import Plan

RESIDUALS = Path(__file__).parent / "data" / "residuals.csv"

_ENOUGH = 6  # runs; fewer say little about a spread
_UNKNOWN = 0.30  # half width of the band where nothing alike was ever validated


@dataclass(frozen=True)
class Band:
    """Factors on the expected step time that bracket 80 % of the runs alike, and what the band rests on."""

    low: float
    high: float
    basis: str
    runs: int


@cache
def _residuals() -> tuple[tuple[str, str, float], ...]:
    if not RESIDUALS.exists():
        return ()
    with RESIDUALS.open(encoding="utf-8", newline="") as file:
        return tuple((row["gpu"], row["stack"], float(row["measured_over_predicted"])) for row in csv.DictReader(file))


def _quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def band(plan: Plan) -> Band:
    """Band of this plan's step time: runs on the same GPU with the same stack, else the same GPU, else the same stack."""
    gpu, stack = plan.cluster.gpu.id, plan.stack.id
    choices = (
        (f"on {gpu} with {stack}", lambda g, s: g == gpu and s == stack, 1.0),
        (f"on {gpu}, other software", lambda g, s: g == gpu, 1.25),
        (f"with {stack}, other GPUs", lambda g, s: s == stack, 1.5),
    )
    for text, alike, widen in choices:
        ratios = [ratio for g, s, ratio in _residuals() if alike(g, s)]
        if len(ratios) >= _ENOUGH:
            error = _quantile([abs(1 / r - 1) for r in ratios], 0.5)
            low, high = _quantile(ratios, 0.1), _quantile(ratios, 0.9)
            low, high = min(1.0, low) ** widen, max(1.0, high) ** widen
            return Band(low, high, f"{len(ratios)} validated runs {text}, median error {error:.1%}", len(ratios))
    return Band(1 - _UNKNOWN, 1 + _UNKNOWN, f"no validated run on {gpu} or with {stack}: +-{_UNKNOWN:.0%}", 0)
