"""Time of whole projects over the best plan for the same tokens on the same machines: tuning
short of the best, restarts, preemption, growing batches, evaluation, other software."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from planner.evidence.spread import SIDE
from planner.evidence.weights import quantile, suite_members, suite_weight
from planner.ledger import Array

PROJECTS = Path(__file__).parent.parent / "data" / "projects.csv"  # published totals
RATIOS = PROJECTS.parent / "project_ratios.csv"  # written by benchmarks/projects.py
RATIO_COLUMNS = ("project", "team", "published_gpu_hours", "best_gpu_hours")
_CORRELATION = 0.3  # of the projects of one team


@dataclass(frozen=True)
class Totals:
    """Projects as columns of equal length."""

    project: Array
    team: Array
    published_gpu_hours: Array
    best_gpu_hours: Array  # of the best plan on the same machines

    def __len__(self) -> int:
        return len(self.project)

    def where(self, mask: Array) -> Totals:
        """Some of the projects."""
        return Totals(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))

    @property
    def log_ratio(self) -> Array:
        """ln of published over best."""
        out: Array = np.log(self.published_gpu_hours / self.best_gpu_hours)
        return out


@dataclass(frozen=True)
class Usual:
    """GPU-hours of a project over the best plan: middle and both ends of an 80 % band."""

    low: float
    middle: float
    high: float


@cache
def recorded() -> Totals:
    """The ratios that ship with this version."""
    with RATIOS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))

    def numbers(name: str) -> Array:
        return np.array([row[name] for row in rows], dtype=float)

    def text(name: str) -> Array:
        return np.array([row[name] for row in rows], dtype=str)

    published, best = (numbers(name) for name in RATIO_COLUMNS[2:])
    return Totals(text("project"), text("team"), published, best)


def usual_of(totals: Totals) -> Usual:
    """Weighted quantiles of these projects; several of one team count less each."""
    weight = suite_weight(suite_members(totals.team), _CORRELATION)
    ends = (quantile(totals.log_ratio, weight, q) for q in (1 - SIDE, 0.5, SIDE))
    return Usual(*(float(np.exp(end)) for end in ends))


@cache
def usual() -> Usual:
    """The ratio over all recorded projects."""
    return usual_of(recorded())


def forget() -> None:
    """Read the file again."""
    recorded.cache_clear()
    usual.cache_clear()


def inside(totals: Totals) -> Array:
    """Whether each project lies in the band of the projects of all other teams, shape
    (projects,)."""
    out = np.zeros(len(totals), dtype=bool)
    for team in set(totals.team.tolist()):
        at = totals.team == team
        band, ratio = usual_of(totals.where(~at)), np.exp(totals.log_ratio[at])
        out[at] = (band.low <= ratio) & (ratio <= band.high)
    return out
