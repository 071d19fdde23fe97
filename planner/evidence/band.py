"""How sure an answer is: the distribution of measured over expected step time, from what validated
runs have shown of the plan's GPU, software and mechanisms (planner/evidence/effects.py).

Runs of one suite share a machine, a team and a way of measuring, so they err together; a band is
that of a run in a suite nobody has seen. Predicted is by numbers fitted without the run's suite.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from planner.evidence.case import FEATURES, Case, Times, case_of
from planner.evidence.effects import SPREADS, Evidence, Forecast, Levels, Model
from planner.evidence.spread import Spread
from planner.evidence.weights import quantile
from planner.ledger import Array
from planner.specs.cluster import Verified
from planner.specs.columns import Columns
from planner.specs.plan import Plan

RESIDUALS = Path(__file__).parent.parent / "data" / "residuals.csv"

# Errors of suites that were in view while the model was made, over those of suites that were not.
# The likelihood of suites left out is largest here of 1, 0.8, 0.75 and 0.65.
SEEN = 0.65
# runs of one suite, GPU and stack whose features differ by less than this, in standard deviations
# of their effects, count as one with less noise: a choice, for speed
_ALIKE = 0.1
_AS_MUCH = 0.5  # a run that has half of a feature says something of it


@dataclass(frozen=True)
class Band:
    """Distribution of measured over expected step time, and what it rests on.

    parts: shares of the variance, by feature, and `noise`. runs: on the same GPU or software.
    """

    spread: Spread
    basis: str
    runs: int
    hardware: str  # what of the GPU validated runs share: GPU, architecture, nothing
    software: str  # what of the stack they share: stack, family, nothing
    parts: dict[str, float]

    @property
    def low(self) -> float:
        """Factor on the expected step time at the fast end of the band."""
        return self.spread.ends()[0]

    @property
    def high(self) -> float:
        """The same at the slow end."""
        return self.spread.ends()[1]


@dataclass(frozen=True)
class Residuals:
    """Validated runs as columns of equal length."""

    run_id: Array
    suite: Array
    levels: Levels
    features: Array
    log_ratio: Array  # ln(measured over predicted step time)
    seen: Array  # bool: in view while the numbers of this version were chosen

    def __len__(self) -> int:
        return len(self.log_ratio)

    def where(self, mask: Array) -> Residuals:
        """Some of the runs."""
        return Residuals(
            self.run_id[mask],
            self.suite[mask],
            self.levels.where(mask),
            self.features[mask],
            self.log_ratio[mask],
            self.seen[mask],
        )

    def case(self, row: int) -> Case:
        """What the band of one of them depends on."""
        at = self.levels
        return Case(
            str(at.gpu[row]),
            str(at.architecture[row]),
            str(at.stack[row]),
            str(at.family[row]),
            tuple(self.features[row].tolist()),
        )


def residuals(rows: Iterable[Mapping[str, object]]) -> Residuals:
    """Columns of rows with `run_id`, `suite`, the fields of a case by name, each of FEATURES,
    `measured_over_predicted` and `seen`."""
    kept = list(rows)
    return _columns({name: [str(row[name]) for row in kept] for name in _COLUMNS})


_COLUMNS = (
    *("run_id", "suite", "gpu", "architecture", "stack", "family"),
    *(*FEATURES, "seen", "measured_over_predicted"),
)


def _columns(cells: Mapping[str, Sequence[str]]) -> Residuals:
    def text(name: str) -> Array:
        return np.array(cells[name], dtype=str)

    def numbers(name: str) -> Array:
        return np.array(cells[name], dtype=float)

    levels = Levels(text("architecture"), text("gpu"), text("family"), text("stack"))
    return Residuals(
        run_id=text("run_id"),
        suite=text("suite"),
        levels=levels,
        features=np.stack([numbers(name) for name in FEATURES], axis=1),
        log_ratio=np.log(numbers("measured_over_predicted")),
        seen=numbers("seen") > 0,
    )


@cache
def recorded() -> Residuals:
    """The residuals that ship with this version."""
    if not RESIDUALS.exists():
        return residuals([])
    with RESIDUALS.open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)  # half the time of a DictReader
    return _columns(dict(zip(header, zip(*lines, strict=True), strict=True)))


def model_of(runs: Residuals) -> Model:
    """The errors of the next run, given these: runs that say the same count as one with less
    noise."""
    if not len(runs):
        return Model(Evidence(runs.features, runs.levels, runs.suite, runs.log_ratio, runs.seen))
    grid = np.round(runs.features * SPREADS.of_features() / _ALIKE).astype(int)
    names = (runs.suite, runs.levels.gpu, runs.levels.stack)
    key = np.column_stack([np.unique(one, return_inverse=True)[1].reshape(-1) for one in names])
    _, first, which, count = np.unique(
        np.hstack([key, grid]), axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    which = which.reshape(-1)

    def mean(column: Array) -> Array:
        return np.asarray(np.bincount(which, column) / count)

    return Model(
        Evidence(
            np.stack([mean(column) for column in runs.features.T], axis=1),
            runs.levels.where(first),
            runs.suite[first],
            mean(np.where(runs.seen, runs.log_ratio / SEEN, runs.log_ratio)),
            count.astype(float),
        )
    )


@cache
def recorded_model(without: str = "") -> Model:
    """The errors of the next run given the shipped residuals, one suite left out."""
    runs = recorded()
    return model_of(runs.where(runs.suite != without))


def forget() -> None:
    """Read the recorded residuals again."""
    for known in (recorded, recorded_model, _recorded_band):
        known.cache_clear()


def shipped_ends(case: Case, suite: str) -> tuple[float, float]:
    """Ends of the band of a run as factors, from shipped residuals without those of its suite."""
    own = suite if (recorded().suite == suite).any() else ""
    spread = spread_of(recorded_model(own).next(case))
    return spread.ends()


def band(plan: Plan, c: Columns, time: Times, row: int = 0) -> Band:
    """Band of the step time of one layout, from the shipped residuals; no narrower than what a
    calibration of its own machine came out at."""
    return no_narrower(_recorded_band(case_of(plan, c, time, row)), plan.cluster.verified)


def no_narrower(found: Band, verified: Verified | None) -> Band:
    """The band, where it reaches as far as verification of a calibration did."""
    if verified is None or (found.low <= verified.low and verified.high <= found.high):
        return found
    ends = (min(found.low, verified.low), max(found.high, verified.high))
    return replace(
        found,
        spread=Spread.of_ends(*ends),
        basis=f"{found.basis}; as wide as the calibration came out on {verified.decoders} decoders",
    )


@cache
def _recorded_band(case: Case) -> Band:
    """Comparisons ask for the same case again and again."""
    return band_of(recorded(), case, recorded_model())


def band_of(runs: Residuals, case: Case, model: Model | None = None) -> Band:
    """Band of a case from these runs; it always contains the expected time.

    model: `model_of` these runs, where known.
    """
    ahead = (model or model_of(runs)).next(case)
    at = runs.levels
    gpu, stack = at.gpu == case.gpu, at.stack == case.stack
    hardware = _nearest(gpu, at.architecture == case.architecture, ("GPU", "architecture"))
    software = _nearest(stack, at.family == case.family, ("stack", "family"))
    whole = sum(ahead.parts.values())
    parts = {name: part / whole for name, part in ahead.parts.items()}
    return Band(
        spread_of(ahead),
        f"{_alike(runs, case, gpu, stack)}; {_widest(runs, case, parts)}",
        int((gpu & stack if (gpu & stack).any() else gpu | stack).sum()),
        hardware,
        software,
        parts,
    )


def spread_of(ahead: Forecast) -> Spread:
    """The distribution of a forecast around what is expected."""
    return Spread.around(ahead.mean, math.sqrt(ahead.variance))


def _nearest(same: Array, like: Array, names: tuple[str, str]) -> str:
    return names[0] if same.any() else names[1] if like.any() else "nothing"


def _alike(runs: Residuals, case: Case, gpu: Array, stack: Array) -> str:
    """The runs most like the case, and their error."""
    if (gpu & stack).any():
        near, text = gpu & stack, "{} on {gpu} with {stack}"
    elif gpu.any():
        near, text = gpu, "no validated run on {gpu} with {stack}; {} on it with other software"
    elif stack.any():
        near, text = stack, "no validated run on {gpu}; {} with {stack} on other GPUs"
    else:
        near, text = ~gpu, "no validated run on {gpu} or with {stack}; {} with others"
    n = int(near.sum())
    said = text.format(
        f"{n:,} validated run{'' if n == 1 else 's'}", gpu=case.gpu, stack=case.stack
    )
    if not n:
        return said
    errors = np.abs(np.exp(-runs.log_ratio[near]) - 1)
    # np.median would import numpy.ma, 7 ms of a cold start
    return f"{said}, median error {quantile(errors, np.ones(n), 0.5):.1%}"


def _widest(runs: Residuals, case: Case, parts: Mapping[str, float]) -> str:
    """What most of the width comes from, and whether any run has shown it."""
    names = [name for name in FEATURES if name != "general"]
    name = max(names, key=lambda one: parts[one])
    if parts[name] < parts["general"]:
        return "the width is mostly that between clusters and teams"
    place = list(FEATURES).index(name)
    shown = runs.features[:, place] >= _AS_MUCH * case.features[place]
    said = f"the width is mostly {FEATURES[name].words} ({parts[name]:.0%})"
    return said if shown.any() else f"{said}, which no validated run shows as much"
