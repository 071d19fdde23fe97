"""Prediction interval of the step time: measured / predicted over held-out suites.

Runs of one suite share a machine, a team and a way of measuring, so that their errors are
correlated, and these errors hardly depend on the breakdown of the step, the GPU, or which of two
similar programs ran: of thirty features tried (docs/log/bands.md), only whether a program is of
Megatron's lineage distinguishes suites. A band therefore has the quantiles of the runs of all
suites, with more weight on the same kind of program, combined with independent terms for mechanisms
that depend on unstated facts: hosts, kernels, the network.
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
from planner.evidence.spread import SIDE, Spread, student
from planner.evidence.weights import quantile, suite_members, suite_weight
from planner.ledger import Array
from planner.specs.cluster import Verified
from planner.specs.columns import Columns
from planner.specs.plan import Plan

RESIDUALS = Path(__file__).parent.parent / "data" / "residuals.csv"

# Choices: round numbers near the best interval score of suites left out, by suites and by runs;
# `benchmarks/bands.py` prints it for these and for others
LINEAGE = "megatron"  # family of programs with one recipe: fused kernels, static shapes
OTHER_PROGRAM = 0.3  # weight of a run with a program that is of it where the case is not, or so
CORRELATION = 0.05  # of errors within a suite: how little each of its many runs counts
# either way, on a GPU that no run was on: clocks of GPUs under load are 0.65 to 1 of their boost,
# and 0.85 is assumed where none was measured
NEW_GPU = 1.08
# the same where nobody timed its GEMMs either: on the ten GPUs with a table large ones reach 0.47
# to 0.77 of the dense rate under load, with a standard deviation of 15 %: four fifths within this
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


def weights(runs: Residuals, *, lineage: bool) -> Array:
    """How much each run says of one whose program is of LINEAGE, or is not: less where many of its
    suite say the same, and where its own program is of the other kind."""
    alike = (runs.levels.family == LINEAGE) == lineage
    weight: Array = np.where(alike, 1.0, OTHER_PROGRAM)
    return weight * suite_weight(suite_members(runs.suite), CORRELATION)


def missed(runs: Residuals, gpu: str, *, lineage: bool, tabled: bool = True) -> Spread:
    """Distribution of measured / predicted over these runs, wider for a GPU that no run used, and
    more so if its GEMMs were never timed; without any run, a factor of two either way."""
    if not len(runs):
        return Spread.of_ends(0.5, 2.0)
    weight = weights(runs, lineage=lineage)
    low, high = (quantile(runs.log_ratio, weight, q) for q in (1 - SIDE, SIDE))
    spread = Spread.of_ends(math.exp(min(low, 0.0)), math.exp(max(high, 0.0)))
    if (runs.levels.gpu == gpu).any():
        return spread
    return spread.beside(math.log(NEW_GPU if tabled else UNTIMED_GPU) / student(SIDE))


def widened(around: Spread, case: Case) -> tuple[Spread, dict[str, float]]:
    """The distribution with what mechanisms may take more or less than expected, and the shares of
    the squared width of its slow half."""
    low, high = (math.log(end) for end in around.ends())
    below, above = {"general": -low}, {"general": high}
    for (name, one), share in zip(FEATURES.items(), case.features, strict=True):
        below[name] = -math.log1p(-(1 - 1 / one.faster) * min(share, 1.0))
        above[name] = math.log1p((one.slower - 1) * share)
    ends = math.exp(-math.hypot(*below.values())), math.exp(math.hypot(*above.values()))
    whole = sum(part**2 for part in above.values()) or 1.0
    shown = ["general", *(name for name, one in FEATURES.items() if one.slower > 1)]
    return Spread.of_ends(*ends), {name: above[name] ** 2 / whole for name in shown}


def forget() -> None:
    """Read the recorded residuals again."""
    for known in (recorded, _recorded_missed, _recorded_band):
        known.cache_clear()


@cache
def _recorded_missed(gpu: str, lineage: bool, tabled: bool, without: str | None = None) -> Spread:
    """`missed` over the shipped runs, or over all suites but one."""
    runs = recorded()
    runs = runs if without is None else runs.where(runs.suite != without)
    return missed(runs, gpu, lineage=lineage, tabled=tabled)


def shipped_ends(case: Case, suite: str) -> tuple[float, float]:
    """Ends of the band of a run as factors, from the shipped residuals of all other suites."""
    lineage = case.family == LINEAGE
    return widened(_recorded_missed(case.gpu, lineage, case.tabled, suite), case)[0].ends()


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
    general = _recorded_missed(case.gpu, case.family == LINEAGE, case.tabled)
    return _of_missed(recorded(), general, case)


def band_of(runs: Residuals, case: Case) -> Band:
    """Band of a case from these runs; it always contains the expected time."""
    around = missed(runs, case.gpu, lineage=case.family == LINEAGE, tabled=case.tabled)
    return _of_missed(runs, around, case)


def _of_missed(runs: Residuals, general: Spread, case: Case) -> Band:
    """`band_of`, with what the runs were missed by."""
    spread, parts = widened(general, case)
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
    if name == "general" and not case.tabled and not (runs.levels.gpu == case.gpu).any():
        return (
            "the width is GEMMs of this GPU, which were not timed, and the spread between"
            " clusters and teams"
        )
    if name == "general":
        return "the width is mostly the spread between clusters and teams"
    shown = runs.feature(name) >= _AS_MUCH * case.feature(name)
    said = f"the width is mostly {FEATURES[name].words} ({parts[name]:.0%})"
    return said if shown.any() else f"{said}, which no validated run shows as much"
