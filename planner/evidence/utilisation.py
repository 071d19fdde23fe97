"""The highest MFU that validated runs reached."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.evidence.band import recorded


@dataclass(frozen=True)
class Highest:
    """The run with the highest MFU among those on a GPU, or on all where it has none."""

    mfu: float
    run_id: str
    runs: int
    where: str  # words for the GPUs of these runs


def highest(gpu: str) -> Highest:
    """Utilisation of runs on GPUs of the same architecture (profile id); of all runs if those are
    few."""
    runs = recorded()
    if not len(runs):
        return Highest(1.0, "", 0, "any GPU")
    at = runs.levels
    names = set(at.architecture[at.gpu == gpu].tolist())
    same = np.isin(at.architecture, list(names))
    where = f"GPUs of {next(iter(names))}" if names else ""
    if same.sum() < _FEWEST:
        same, where = np.ones(len(runs), dtype=bool), "any GPU"
    row = int(np.flatnonzero(same)[np.argmax(runs.mfu[same])])
    return Highest(float(runs.mfu[row]), str(runs.run_id[row]), int(same.sum()), where)


_FEWEST = 20  # runs that say what an architecture reaches
