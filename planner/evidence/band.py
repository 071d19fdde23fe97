"""Prediction interval of the step time: measured / predicted over held-out suites.

Runs of one suite share a machine, a team and a way of measuring, so that their errors are
correlated: what the next suite is missed by depends on how much of it is new. A band adds in
quadrature the error of plain runs of measured software; the novelty of the stack, the GPU and the
combination of methods, by how many suites show each; and FEATURES, which were missed by more than
the rest. What is left of the residuals beside the latter two is the former. Suites in view while
mechanisms were chosen were missed by less than those collected later, and count as if missed by
more.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from planner.evidence.case import FEATURES, Case, Times, case_of, kinds
from planner.evidence.spread import SIDE, Spread
from planner.evidence.weights import quantile, suite_members, suite_weight
from planner.ledger import Array
from planner.specs.cluster import Verified
from planner.specs.columns import Columns
from planner.specs.plan import Plan

RESIDUALS = Path(__file__).parent.parent / "data" / "residuals.csv"

# Choices: round numbers near the best interval score of suites left out, by suites and by runs;
# `benchmarks/bands.py` prints it for these and for others
CORRELATION = 0.2  # of errors within a suite: how little each of its many runs counts
# residuals of suites in view while the model was made, over those of suites collected later, which
# were missed 1.4 times as far (root mean squares of 37 and 11 suites, geometric means)
IN_VIEW = 0.75
LATER = 2.0  # weight of a run of the latter
# half-widths of what no suite has shown; with n suites that have, of 1 / (1 + n) of the variance
NEW = {"gpu": 1.2, "stack": 1.1, "combination": 1.1}
# the same of a GPU where nobody timed its GEMMs either: on the ten GPUs with a table large ones
# reach 0.47 to 0.77 of the dense rate under load, with a standard deviation of 15 %
UNTIMED_GPU = 1.2
_AS_MUCH = 0.5  # a run that has half of a feature says something of it


@dataclass(frozen=True)
class Levels:
    """GPU and software of runs, by name; a column each."""

    architecture: Array
    gpu: Array
    family: Array
    stack: Array

    def where(self, mask: Array) -> Levels:
        """Some of the runs."""
        return Levels(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Band:
    """Distribution of measured over expected step time, and what it rests on.

    parts: shares of the squared slow half of the width: `general`, what runs alike were missed by,
    and features that widen. runs: on the same GPU or software.
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
    mfu: Array  # measured
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
            self.mfu[mask],
            self.seen[mask],
        )

    @cached_property
    def kind(self) -> Array:
        """What is combined in each run, as `kinds` has it."""
        return kinds(self.features)

    def feature(self, name: str) -> Array:
        """One column of FEATURES."""
        column: Array = self.features[:, list(FEATURES).index(name)]
        return column

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
    *(*FEATURES, "seen", "mfu", "measured_over_predicted"),
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
        mfu=numbers("mfu"),
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


def weights(runs: Residuals) -> Array:
    """How much each run says: less where many of its suite say the same, and more where its suite
    was never in view."""
    later: Array = np.where(runs.seen, 1.0, LATER)
    return later * suite_weight(suite_members(runs.suite), CORRELATION)


def novelty(runs: Residuals, case: Case) -> dict[str, float]:
    """Half-widths, as logarithms, of what is new in a case beside these runs, by NEW."""
    return {
        name: _half_width(name, len(set(runs.suite[same].tolist())))
        + (math.log(UNTIMED_GPU) if name == "gpu" and not case.tabled and not same.any() else 0.0)
        for name, same in (
            ("gpu", runs.levels.gpu == case.gpu),
            ("stack", runs.levels.stack == case.stack),
            ("combination", runs.kind == case.kind),
        )
    }


def _half_width(name: str, suites: Any) -> Any:
    return math.log(NEW[name]) / np.sqrt(1.0 + suites)


def _other_suites(values: Array, suites: Array) -> Array:
    """Of every run, how many other suites have its value."""
    _, value = np.unique(values, return_inverse=True)
    _, suite = np.unique(suites, return_inverse=True)
    pairs = np.unique(value.reshape(-1) * (suite.max() + 1) + suite.reshape(-1))
    having = np.bincount(pairs // (suite.max() + 1))
    return having[value.reshape(-1)] - 1


def missed(runs: Residuals) -> Spread:
    """Distribution of measured / predicted of plain runs of measured software: residuals without
    what is new in each beside the other suites, and without its features. Without any run, a factor
    of two either way."""
    if not len(runs):
        return Spread.of_ends(0.5, 2.0)
    new = [
        _half_width(name, _other_suites(values, runs.suite))
        for name, values in (
            ("gpu", runs.levels.gpu),
            ("stack", runs.levels.stack),
            ("combination", runs.kind),
        )
    ]
    below, above = sides(runs.features)
    far = runs.log_ratio / np.where(runs.seen, IN_VIEW, 1.0)

    def left(distance: Array, side: Array) -> float:
        other = np.sum(np.square(new), axis=0) + np.sum(np.square(side), axis=1)
        rest = np.sqrt(np.maximum(np.square(np.maximum(distance, 0.0)) - other, 0.0))
        return quantile(rest, weights(runs), SIDE)

    return Spread.of_ends(math.exp(-left(-far, below)), math.exp(left(far, above)))


def sides(lines: Array) -> tuple[Array, Array]:
    """Half-widths that features add, as logarithms, towards faster and slower; lines: of FEATURES,
    shape (runs, features)."""
    slower = np.array([one.slower for one in FEATURES.values()])
    faster = np.array([one.faster for one in FEATURES.values()])
    return -np.log1p(-(1 - 1 / faster) * np.minimum(lines, 1.0)), np.log1p((slower - 1) * lines)


def widened(
    around: Spread, case: Case, new: Mapping[str, float]
) -> tuple[Spread, dict[str, float]]:
    """The distribution with what is new and what features add, and the shares of the squared width
    of its slow half. new: of `novelty`."""
    low, high = (math.log(end) for end in around.ends())
    new = {name: float(width) for name, width in new.items()}
    faster, slower = (side[0].tolist() for side in sides(np.array([case.features])))
    above = {"general": high, **new, **dict(zip(FEATURES, slower, strict=True))}
    ends = math.exp(-math.hypot(low, *new.values(), *faster)), math.exp(math.hypot(*above.values()))
    whole = sum(part**2 for part in above.values()) or 1.0
    shown = ["general", *new, *(name for name, one in FEATURES.items() if one.slower > 1)]
    return Spread.of_ends(*ends), {name: float(above[name] ** 2 / whole) for name in shown}


def forget() -> None:
    """Read the recorded residuals again."""
    for known in (recorded, _recorded_missed, _recorded_band, on_gpu):
        known.cache_clear()


@cache
def _recorded_missed(without: str | None = None) -> tuple[Residuals, Spread]:
    """The shipped runs, of all suites or of all but one, and `missed` over them."""
    runs = recorded()
    runs = runs if without is None else runs.where(runs.suite != without)
    return runs, missed(runs)


def shipped_ends(case: Case, suite: str) -> tuple[float, float]:
    """Ends of the band of a run as factors, from the shipped residuals of all other suites."""
    runs, general = _recorded_missed(suite)
    return widened(general, case, novelty(runs, case))[0].ends()


def band(plan: Plan, c: Columns, time: Times, row: int = 0, islands: Array | float = 0.0) -> Band:
    """Band of the step time of one layout, from the shipped residuals; no narrower than what a
    calibration of its own machine came out at. islands: as in `case_of`."""
    found = _recorded_band(case_of(plan, c, time, row, islands))
    return no_narrower(found, plan.cluster.verified)


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
    return _of_missed(*_recorded_missed(), case)


def band_of(runs: Residuals, case: Case) -> Band:
    """Band of a case from these runs; it always contains the expected time."""
    return _of_missed(runs, missed(runs), case)


def _of_missed(runs: Residuals, general: Spread, case: Case) -> Band:
    """`band_of`, with what the runs were missed by."""
    spread, parts = widened(general, case, novelty(runs, case))
    at = runs.levels
    gpu, stack = at.gpu == case.gpu, at.stack == case.stack
    return Band(
        spread,
        f"{_alike(runs, case, gpu, stack)}; {_widest(runs, case, parts)}",
        int((gpu & stack if (gpu & stack).any() else gpu | stack).sum()),
        _nearest(gpu, at.architecture == case.architecture, ("GPU", "architecture")),
        _nearest(stack, at.family == case.family, ("stack", "family")),
        parts,
    )


@dataclass(frozen=True)
class OnGpu:
    """Validated runs on one GPU."""

    runs: int
    suites: int
    median_error: float  # of the predicted step time, as a share

    @property
    def is_thin(self) -> bool:
        """Whether they say little: of fewer than two suites, or missed by much."""
        return self.suites < _FEW_SUITES or self.median_error > _POOR

    def words(self, gpu: str) -> str:
        """The same in words."""
        if not self.runs:
            return f"no validated run on {gpu}"
        plural, of = ("" if self.runs == 1 else "s"), ("" if self.suites == 1 else "s")
        return (
            f"{self.runs:,} validated run{plural} on {gpu}, of {self.suites} suite{of}, median"
            f" error {self.median_error:.0%}"
        )


_FEW_SUITES = 3  # suites on a GPU below which its runs are called few
_POOR = 0.15  # median error above which they are called poor


@cache
def on_gpu(gpu: str) -> OnGpu:
    """What recorded runs say of a GPU (profile id)."""
    runs = recorded()
    at = runs.levels.gpu == gpu
    if not at.any():
        return OnGpu(0, 0, 0.0)
    errors = np.abs(np.exp(-runs.log_ratio[at]) - 1)
    median = quantile(errors, np.ones(len(errors)), 0.5)
    return OnGpu(int(at.sum()), len(set(runs.suite[at].tolist())), median)


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
    name = max(parts, key=parts.__getitem__)
    if name == "gpu" and not case.tabled and not (runs.levels.gpu == case.gpu).any():
        return (
            "the width is GEMMs of this GPU, which were not timed, and the spread between"
            " clusters and teams"
        )
    if name == "general":
        return "the width is mostly the spread between clusters and teams"
    if name in NEW:
        what = "GPU" if name == "gpu" else name
        return f"the width is mostly that few suites show this {what} ({parts[name]:.0%})"
    shown = runs.feature(name) >= _AS_MUCH * case.feature(name)
    said = f"the width is mostly {FEATURES[name].words} ({parts[name]:.0%})"
    return said if shown.any() else f"{said}, which no validated run shows as much"
