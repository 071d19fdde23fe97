"""Prediction interval of the step time: measured / predicted over held-out suites.

Runs of one suite share a machine, a team and a way of measuring, so that their errors are
correlated: the error of the next suite depends on how well its kind is known. The half-width of
the interval, as a logarithm, is exp(plain + sum of coefficient x feature) over WIDENS, the
properties that make a step less well known, with coefficients fitted to the interval score of all
suites (`benchmarks/studies/widths.py`). What no request states (UNSTATED)
is added in quadrature by its physical bounds. Suites that were in view while mechanisms were chosen
were missed by less than those collected later: whether a run is from the earlier ones is a feature
of the fit, and requests count as later.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from planner.evidence.case import FEATURES, Case, Times, case_of, kinds
from planner.evidence.spread import Spread
from planner.evidence.weights import quantile
from planner.ledger import Array
from planner.specs.cluster import Verified
from planner.specs.columns import Columns
from planner.specs.plan import Plan

_DATA = Path(__file__).parent.parent / "data"
RESIDUALS = _DATA / "residuals.csv"
WIDTHS = _DATA / "band_widths.csv"  # written by `python -m benchmarks.studies.widths`

# what multiplies the half-width, each by exp(coefficient x feature): features of a case, and
NEW_GPU = "new_gpu"  # 1 / (1 + suites that show the GPU)
LOW_MFU = "low_mfu"  # ln(_HIGH_MFU / predicted MFU), where that is more than 0
LONG = "long"  # of FEATURES, up to 1; narrows, as attention is one kernel that was timed
LATER = "later"  # 1: of a suite that was not in view while the model was made
WIDENS = {
    "loop": "a training loop of one's own",
    "experts": "kernels of a mixture of experts",
    "fp8": "8-bit GEMMs",
    "fp4": "4-bit GEMMs",
    "adapters": "adapters beside frozen weights",
    "before_ampere": "GPUs before Ampere",
    "blackwell": "young kernels of Blackwell",
    "amd": "kernels and collectives of ROCm",
    NEW_GPU: "that few suites show this GPU",
    LOW_MFU: "a step that is far from the peak rate",
    LONG: "attention over long sequences",
    LATER: "the spread between clusters and teams",
}
# one-sided: a loop of one's own is rather slower than expected than faster
ONE_SIDED = ("loop",)
_HIGH_MFU = 0.5
# half-width for a GPU without a validated run and without measured GEMMs: on the ten GPUs with a
# table large GEMMs reach 0.47 to 0.77 of the dense rate under load, a standard deviation of 15 %
UNTIMED_GPU = 1.2
UNTIMED = "untimed"
# half-width that steps of images add to steps of text: the mean errors of eight suites of images
# (docs/log/images.md), which no width was fitted to, have a standard deviation of 12 %, of which
# 80 % of a normal distribution lie within 1.28
PICTURES_FACTOR = 1.16
PICTURES = "pictures"
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
    """Distribution of measured over expected step time, and its evidence.

    parts: shares of the squared slow half of the width: LATER of plain runs, and what widens it.
    runs: on the same GPU or software.
    """

    spread: Spread
    basis: str
    runs: int
    hardware: str  # nearest validated hardware: same GPU, same architecture, or none
    software: str  # nearest validated software: same stack, same family, or none
    parts: dict[str, float]

    @property
    def low(self) -> float:
        """Factor on the expected step time at the fast end of the band."""
        return self.spread.ends()[0]

    @property
    def high(self) -> float:
        """The slow end of the band."""
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
    predicted_mfu: Array
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
            self.predicted_mfu[mask],
            self.seen[mask],
        )

    @cached_property
    def kind(self) -> Array:
        """The combination of methods of each run, as in `kinds`."""
        return kinds(self.features)

    def feature(self, name: str) -> Array:
        """One column of FEATURES."""
        column: Array = self.features[:, list(FEATURES).index(name)]
        return column

    def case(self, row: int) -> Case:
        """The properties of one run on which its band depends."""
        at = self.levels
        return Case(
            str(at.gpu[row]),
            str(at.architecture[row]),
            str(at.stack[row]),
            str(at.family[row]),
            tuple(self.features[row].tolist()),
            float(self.predicted_mfu[row]),
        )


def residuals(rows: Iterable[Mapping[str, object]]) -> Residuals:
    """Columns of rows with `run_id`, `suite`, the fields of a case by name, each of FEATURES,
    `measured_over_predicted` and `seen`."""
    kept = list(rows)
    return _columns({name: [str(row[name]) for row in kept] for name in _COLUMNS})


_COLUMNS = (
    *("run_id", "suite", "gpu", "architecture", "stack", "family"),
    *(*FEATURES, "seen", "mfu", "measured_over_predicted", "measured_over_default"),
)


def _columns(cells: Mapping[str, Sequence[str]]) -> Residuals:
    def text(name: str) -> Array:
        return np.array(cells[name], dtype=str)

    def numbers(name: str) -> Array:
        return np.array(cells[name], dtype=float)

    levels = Levels(text("architecture"), text("gpu"), text("family"), text("stack"))
    mfu = numbers("mfu")
    return Residuals(
        run_id=text("run_id"),
        suite=text("suite"),
        levels=levels,
        features=np.stack([numbers(name) for name in FEATURES], axis=1),
        log_ratio=np.log(numbers("measured_over_predicted")),
        mfu=mfu,
        predicted_mfu=mfu * numbers("measured_over_default"),
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


@dataclass(frozen=True)
class Widths:
    """Half-widths of plain runs as logarithms of logarithms, and the coefficient of each of WIDENS;
    of ONE_SIDED what is added towards faster and slower."""

    below: float
    above: float
    widens: Mapping[str, float]
    below_of: Mapping[str, float]
    above_of: Mapping[str, float]


def widths_of(row: Mapping[str, str]) -> Widths:
    """One row of WIDTHS."""
    return Widths(
        float(row["below"]),
        float(row["above"]),
        {name: float(row[name]) for name in WIDENS},
        {name: float(row[f"{name}_below"]) for name in ONE_SIDED},
        {name: float(row[f"{name}_above"]) for name in ONE_SIDED},
    )


@cache
def _fitted() -> Mapping[str, Widths]:
    """Fitted widths by the suite that was left out of the fit; "" for all suites."""
    with WIDTHS.open(encoding="utf-8", newline="") as file:
        return {row["without"]: widths_of(row) for row in csv.DictReader(file)}


def widening(
    lines: Array, new_gpu: Array, mfu: Array, later: Array | float = 1.0
) -> dict[str, Array]:
    """Columns of WIDENS. lines: of FEATURES, shape (runs, features); mfu: predicted."""
    names = list(FEATURES)
    values = {
        LONG: np.minimum(lines[:, names.index(LONG)], 1.0),  # of longer ones there are few runs
        NEW_GPU: new_gpu,
        LOW_MFU: np.maximum(np.log(_HIGH_MFU / np.maximum(mfu, _LEAST_MFU)), 0.0),
        LATER: later * np.ones(len(lines)),
    }
    return {
        name: values[name] if name in values else lines[:, names.index(name)] for name in WIDENS
    }


_LEAST_MFU = 1e-3  # so that steps which hardly compute have a width with an end


def sides(lines: Array) -> tuple[Array, Array]:
    """Half-widths of factors that no request states, as logarithms, towards faster and slower;
    lines: of FEATURES, shape (runs, features)."""
    slower = np.array([feature.slower for feature in FEATURES.values()])
    faster = np.array([feature.faster for feature in FEATURES.values()])
    return -np.log1p(-(1 - 1 / faster) * np.minimum(lines, 1.0)), np.log1p((slower - 1) * lines)


def widened(widths: Widths, runs: Residuals, case: Case) -> tuple[Spread, dict[str, float]]:
    """The distribution of a case beside these runs, and the shares of the squared width of its slow
    half: of plain runs (LATER), of the rest of WIDENS by their share of the factor, and of what no
    request states."""
    here = runs.levels.gpu == case.gpu
    suites = len(set(runs.suite[here].tolist()))
    lines = np.array([case.features])
    columns = widening(lines, np.array([1.0 / (1 + suites)]), np.array([case.mfu]))
    each = {name: widths.widens[name] * float(column[0]) for name, column in columns.items()}
    both = sum(each.values())
    one_sided = {name: float(columns[name][0]) for name in ONE_SIDED}
    below = widths.below + both + sum(widths.below_of[n] * x for n, x in one_sided.items())
    more = {name: widths.above_of[name] * x for name, x in one_sided.items()}
    above = widths.above + both + sum(more.values())
    faster, slower = (side[0].tolist() for side in sides(lines))
    unstated = dict(zip(FEATURES, slower, strict=True))
    untimed = 0.0 if case.tabled or suites else math.log(UNTIMED_GPU)
    pictures = math.log(PICTURES_FACTOR) * case.pictured
    low = math.hypot(math.exp(below), untimed, pictures, *faster)
    high = math.hypot(math.exp(above), untimed, pictures, *slower)
    parts = {name: (value / high) ** 2 for name, value in unstated.items() if value > 0}
    parts |= {UNTIMED: (untimed / high) ** 2} if untimed else {}
    parts |= {PICTURES: (pictures / high) ** 2} if pictures else {}
    fitted = (math.exp(above) / high) ** 2
    factors = {n: max(each[n] + more.get(n, 0.0), 0.0) for n in WIDENS if n != LATER}
    plain = fitted * math.exp(-2 * sum(factors.values()))
    whole = sum(factors.values()) or 1.0
    parts |= {n: (fitted - plain) * x / whole for n, x in factors.items() if x > 0}
    return Spread.of_ends(math.exp(-low), math.exp(high)), {LATER: plain, **parts}


def forget() -> None:
    """Read the recorded residuals again."""
    for known in (recorded, _fitted, _recorded_band, on_gpu):
        known.cache_clear()


def shipped_ends(case: Case, suite: str) -> tuple[float, float]:
    """Ends of the band of a run as factors, from the shipped residuals of all other suites."""
    runs, fitted = recorded(), _fitted()
    others = runs.where(runs.suite != suite)
    return widened(fitted.get(suite, fitted[""]), others, case)[0].ends()


def band(
    plan: Plan, c: Columns, time: Times, mfu: float, row: int = 0, islands: Array | float = 0.0
) -> Band:
    """Band of the step time of one layout, from the shipped residuals; no narrower than what a
    calibration of its own machine came out at. mfu, islands: as in `case_of`."""
    result = _recorded_band(case_of(plan, c, time, mfu, row, islands))
    return no_narrower(result, plan.cluster.verified)


def no_narrower(band: Band, verified: Verified | None) -> Band:
    """The band, where it reaches as far as verification of a calibration did."""
    if verified is None or (band.low <= verified.low and verified.high <= band.high):
        return band
    ends = (min(band.low, verified.low), max(band.high, verified.high))
    return replace(
        band,
        spread=Spread.of_ends(*ends),
        basis=f"{band.basis}; as wide as the calibration came out on {verified.decoders} decoders",
    )


@cache
def _recorded_band(case: Case) -> Band:
    """Comparisons ask for the same case again and again."""
    return band_of(_fitted()[""], recorded(), case)


def band_of(widths: Widths, runs: Residuals, case: Case) -> Band:
    """Band of a case from these runs; it always contains the expected time."""
    spread, parts = widened(widths, runs, case)
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
        """The band in words."""
        if not self.runs:
            return f"no validated run on {gpu}"
        runs = "run" if self.runs == 1 else "runs"
        suites = "suite" if self.suites == 1 else "suites"
        return (
            f"{self.runs:,} validated {runs} on {gpu}, of {self.suites} {suites}, median error"
            f" {self.median_error:.0%}"
        )


_FEW_SUITES = 3  # suites on a GPU below which its runs are called few
_POOR = 0.15  # median error above which they are called poor


@cache
def on_gpu(gpu: str) -> OnGpu:
    """Evidence of recorded runs for a GPU (profile id)."""
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
    sentence = text.format(
        f"{n:,} validated run{'' if n == 1 else 's'}", gpu=case.gpu, stack=case.stack
    )
    if not n:
        return sentence
    errors = np.abs(np.exp(-runs.log_ratio[near]) - 1)
    # np.median would import numpy.ma, 7 ms of a cold start
    return f"{sentence}, median error {quantile(errors, np.ones(n), 0.5):.1%}"


def _widest(runs: Residuals, case: Case, parts: Mapping[str, float]) -> str:
    """The main source of the width, and whether any run has shown it."""
    name = max(parts, key=parts.__getitem__)
    if name == UNTIMED:
        return (
            "the width is mostly GEMMs of this GPU, which were not timed, and the spread between"
            " clusters and teams"
        )
    if name == LATER:
        return f"the width is mostly {WIDENS[LATER]}"
    if name == PICTURES:
        return f"the width is mostly the spread between suites of images ({parts[name]:.0%})"
    if name in WIDENS:
        return f"the width is mostly {WIDENS[name]} ({parts[name]:.0%})"
    shown = runs.feature(name) >= _AS_MUCH * case.feature(name)
    text = f"the width is mostly {FEATURES[name].words} ({parts[name]:.0%})"
    return text if shown.any() else f"{text}, which no validated run shows as much"
