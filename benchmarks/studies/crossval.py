"""Cross-validation: measured runs predicted by numbers fitted without them, leaving out models, GPU
counts or suites; under a minute over the shipped runs.

    python -m benchmarks.studies.crossval [--suite SUITE] [RUNS.csv ...]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from zlib import crc32

import numpy as np

from benchmarks.studies.runs import named, show
from planner.estimate.machine.clock import law_of
from planner.ledger import Array
from planner.studies.documents.validate import Errors, ErrorsOfSuites, Ranking
from planner.studies.validate.errors import errors, errors_of_suites, recipe_of
from planner.studies.validate.fit import (
    ACROSS,
    WITHIN,
    Case,
    Evaluations,
    Question,
    Trust,
    Value,
    answers,
    multipliers,
    step_times,
    suite_weights,
    times_of,
)
from planner.studies.validate.parameters import CLOCK_ONLY, PLATFORM, SHARED
from planner.studies.validate.ranking import (
    Ranked,
    busy_s,
    collectives,
    group_of,
    groups_of,
    layout_of,
    ranking,
    repeated_s,
)
from planner.studies.views.validate import ORDER, order_cells
from planner.units import percent
from planner.views.view import Block

LARGE = 64  # GPUs: platforms are fitted up to here and judged beyond
# two runs are enough for a number that held-out errors judge (at least 1, 2, 3 runs: 7.9, 7.9, 8.4
# %, all kinds, mean of suites)
_CALIBRATED = Trust(WITHIN.noise, fewest=2)

# why a shared number sits on its bound, by label; docs/accuracy prints it and a test asks for it.
# None does.
ON_BOUND: dict[str, str] = {}


@dataclass(frozen=True)
class HeldOut:
    """Errors of one kind of leaving out."""

    meaning: str  # what is predicted by what
    all: ErrorsOfSuites  # of step time
    tier_a: ErrorsOfSuites  # the same over runs of tier A
    suites: dict[str, Errors]  # by suite
    ranking: Ranking  # order of layouts


@dataclass(frozen=True)
class FittedNumber:
    """A number shared by platforms, fitted on all suites."""

    name: str  # the number and where it holds
    meaning: str  # the number in words
    numbers: list[str]  # names of the numbers it multiplies, as `estimate` lists them
    multiplier: float  # 1 is the shipped value
    spread: float  # standard deviation of its logarithm that the runs leave
    runs: int  # runs that depend on it; three at least
    low: float  # lower bound of the multiplier
    high: float  # upper bound of the multiplier
    on_bound: bool  # the fit stops at a bound


@dataclass(frozen=True)
class Clock:
    """The sustained clock of one platform, fitted on its runs with nothing else moved."""

    platform: str  # suite/gpu/stack
    gpu: str  # profile id of the GPU
    runs: int  # runs that depend on it
    shipped: float  # sustained clock of the profile, over the clock of the kernel tables
    fitted: float  # the same, fitted
    spread: float  # standard deviation of its logarithm
    on_bound: bool  # the fit stops at a bound
    power_law: float | None  # by board power; None without an energy per FLOP


@dataclass(frozen=True)
class HeldOutRun:
    """A row with a time."""

    run_id: str  # id of the row
    suite: str  # suite of runs
    tier: str  # how sure the recipe is: A or B
    gpus: int  # GPUs of the run
    measured_step_s: float  # measured step time (s)
    # by kind of leaving out (s); None where the row could not be left out
    predicted_step_s: dict[str, float | None]


@dataclass(frozen=True)
class CrossValidation:
    """Runs predicted by numbers fitted without them."""

    kinds: dict[str, HeldOut]  # by kind of leaving out, as `MEANINGS`
    parameters: list[FittedNumber]  # numbers fitted on all suites
    clocks: list[Clock]  # one per platform
    rows: list[HeldOutRun]  # every row with a time


@dataclass(frozen=True)
class Fold:
    """How the runs of a platform are divided: each part is predicted by numbers fitted on the
    others."""

    meaning: str
    part: Callable[[Case], str]
    only: str | None = None  # the one part that is judged


FOLDS = {
    "halves": Fold(
        "each half of a platform's recipes by the other half, drawn at random",
        lambda c: str(crc32(recipe_of(c.row).encode()) % 2),
    ),
    "models": Fold(
        "each model by the platform's other models",
        lambda c: f"{c.plan.model.layers}/{c.plan.model.hidden}/{c.plan.model.routed is not None}",
    ),
    "gpus": Fold(
        "each number of GPUs by the platform's other numbers", lambda c: str(c.plan.cluster.gpus)
    ),
    "scale": Fold(
        f"a platform's runs on more than {LARGE} GPUs by those on up to {LARGE}",
        lambda c: "large" if c.plan.cluster.gpus > LARGE else "small",
        only="large",
    ),
}

MEANINGS = {
    "defaults": "shipped defaults, nothing fitted here",
    "suites": "each suite by shared numbers fitted on all other suites",
    **{name: fold.meaning for name, fold in FOLDS.items()},
    "clock": "one clock per platform, fitted on all of its runs; nothing held out",
}


@dataclass(frozen=True)
class _Prediction:
    """One run by one set of numbers."""

    seconds: float
    busy_s: float  # in which the GPU computes
    collectives: float
    recompute_s: float


_Predictions = dict[int, _Prediction]  # by place of the run, of those that could be held out


def _predict(case: Case, questions: Sequence[Evaluations]) -> list[list[_Prediction]]:
    """A run under the sets of multipliers of each question, in one evaluation."""
    time = times_of(case, questions)
    every = (
        _Prediction(
            float(time.seconds[j]), busy_s(time, j), collectives(time, j), repeated_s(time, j)
        )
        for j in range(len(time.seconds))
    )
    return [list(islice(every, len(points))) for _, points in questions]


def cross_validate(cases: Sequence[Case], noise: float = 0.0) -> CrossValidation:
    """Errors of every kind, held-out predictions of every run, and the fitted numbers.

    noise: noise floor of the measurements, within which predictions of two layouts tie.
    """
    platforms = _platforms(cases)
    parts = {name: folds_of([cases[i] for i in members]) for name, members in platforms.items()}
    suites, *of_platforms = answers(
        cases,
        [
            _every_suite(cases),
            *(
                Question(
                    members,
                    PLATFORM,
                    [np.where(out, 0.0, 1.0) for _, out in parts[name]],
                    _CALIBRATED,
                )
                for name, members in platforms.items()
            ),
            *(
                Question(members, CLOCK_ONLY, [np.ones(len(members))])
                for members in platforms.values()
            ),
        ],
    )
    left_out, clocked = of_platforms[: len(platforms)], of_platforms[len(platforms) :]
    *each, values = suites
    of_suite = dict(zip(_suites(cases), map(multipliers, each), strict=True))
    kinds: dict[str, _Predictions] = {name: {} for name in MEANINGS}
    clocks = []
    for (name, members), fitted, (clock,) in zip(platforms.items(), left_out, clocked, strict=True):
        clocks += [_clock(name, cases[members[0]], value) for value in clock]
        for place, i in enumerate(members):
            folds = [
                (kind, multipliers(numbers))
                for (kind, out), numbers in zip(parts[name], fitted, strict=True)
                if out[place]
            ]
            plain, suite, folded, one_clock = _predict(
                cases[i],
                [
                    ((), [{}]),
                    (SHARED, [of_suite[cases[i].row["suite"]]]),
                    (PLATFORM, [point for _, point in folds]),
                    (CLOCK_ONLY, [multipliers(clock)]),
                ],
            )
            kinds["defaults"][i], kinds["suites"][i] = plain[0], suite[0]
            kinds["clock"][i] = one_clock[0]
            for (kind, _), prediction in zip(folds, folded, strict=True):
                kinds[kind][i] = prediction
    return CrossValidation(
        kinds={name: _held_out(name, cases, kinds[name], noise) for name in MEANINGS},
        parameters=[_fitted(value) for value in values],
        clocks=clocks,
        rows=[
            HeldOutRun(
                run_id=case.row["run_id"],
                suite=case.row["suite"],
                tier=case.row.get("tier", ""),
                gpus=case.plan.cluster.gpus,
                measured_step_s=case.seconds,
                predicted_step_s={
                    name: kind[i].seconds if i in kind else None for name, kind in kinds.items()
                },
            )
            for i, case in enumerate(cases)
        ],
    )


def without_each_suite(cases: Sequence[Case]) -> tuple[Array, list[Value]]:
    """Step time (s) of each case by shared numbers fitted on all other suites, and the values
    fitted on all suites."""
    ((*each, values),) = answers(cases, [_every_suite(cases)])
    points = dict(zip(_suites(cases), map(multipliers, each), strict=True))
    times = [step_times(case, SHARED, [points[case.row["suite"]]]) for case in cases]
    return np.array([float(time.seconds[0]) for time in times]), values


def _suites(cases: Sequence[Case]) -> list[str]:
    return sorted({case.row["suite"] for case in cases})


def _every_suite(cases: Sequence[Case]) -> Question:
    """Shared numbers without each of the suites, and with all of them."""
    weight = suite_weights(cases)
    suites = np.array([case.row["suite"] for case in cases], dtype=str)
    without = [np.where(suites == name, 0.0, weight) for name in _suites(cases)]
    return Question(range(len(cases)), SHARED, [*without, weight], ACROSS)


def _platforms(cases: Sequence[Case]) -> dict[str, list[int]]:
    out: dict[str, list[int]] = defaultdict(list)
    for i, case in enumerate(cases):
        out[case.platform].append(i)
    return dict(sorted(out.items()))


def folds_of(members: Sequence[Case]) -> list[tuple[str, Array]]:
    """The parts of a platform's runs that are held out, with their kind: masks of the runs; none
    where there is one part only."""
    out = []
    for kind, fold in FOLDS.items():
        parts = np.array([fold.part(case) for case in members], dtype=str)
        names = sorted(set(parts.tolist()))
        if len(names) > 1:
            out += [(kind, parts == name) for name in names if fold.only in (None, name)]
    return out


def _held_out(name: str, cases: Sequence[Case], predicted: _Predictions, noise: float) -> HeldOut:
    """Errors of the held-out cases whose recipe is complete: all, tier A, each suite, and the order
    of layouts."""
    suites: dict[str, list[float]] = defaultdict(list)
    tier_a: dict[str, list[float]] = defaultdict(list)
    runs = []
    for i, prediction in sorted(predicted.items()):
        case, row = cases[i], cases[i].row
        if not case.complete:
            continue
        error = prediction.seconds / case.seconds - 1
        suites[row["suite"]].append(error)
        if row.get("tier", "") == "A":
            tier_a[row["suite"]].append(error)
        runs.append(
            Ranked(
                run_id=row["run_id"],
                suite=row["suite"],
                gpu=row["gpu"],
                gpus=case.plan.cluster.gpus,
                stack=row["stack"],
                model=case.plan.model.name,
                group=group_of(row),
                layout=layout_of(row),
                predicted_s=prediction.seconds,
                measured_s=case.seconds,
                busy_s=prediction.busy_s,
                collectives=prediction.collectives,
                recompute_s=prediction.recompute_s,
            )
        )
    return HeldOut(
        meaning=MEANINGS[name],
        all=errors_of_suites(suites),
        tier_a=errors_of_suites(tier_a),
        suites={suite: errors(each) for suite, each in sorted(suites.items())},
        ranking=ranking(groups_of(runs, noise)),
    )


def _fitted(value: Value) -> FittedNumber:
    return FittedNumber(
        name=value.label,
        meaning=value.parameter.meaning,
        numbers=list(value.parameter.numbers),
        multiplier=value.multiplier,
        spread=value.spread,
        runs=value.runs,
        low=value.parameter.low,
        high=value.parameter.high,
        on_bound=value.on_bound,
    )


def _clock(platform: str, case: Case, value: Value) -> Clock:
    shipped = float(case.numbers.sustained_clock)
    return Clock(
        platform=platform,
        gpu=case.plan.cluster.gpu.id,
        runs=value.runs,
        shipped=shipped,
        fitted=shipped * value.multiplier,
        spread=value.spread,
        on_bound=value.on_bound,
        power_law=law_of(case.plan.cluster.gpu),
    )


def blocks(crossval: CrossValidation, noise: float | None) -> list[Block]:
    """Errors of every kind of leaving out, over runs and of tier A; per suite; and what was
    fitted."""
    header = ["left out", ">runs", ">MAPE", ">of suites", ">median", ">bias"]

    def cells(name: str, errors_of: ErrorsOfSuites) -> list[str]:
        errors = (errors_of.mape, errors_of.mape_of_suites, errors_of.median_ape, errors_of.bias)
        return [name, str(errors_of.n), *map(percent, errors)]

    over = Block(
        "Cross-validation: errors of step time",
        [
            *(f"{name}: {kind.meaning}" for name, kind in crossval.kinds.items()),
            f"noise floor of the data: {percent(noise)}",
        ],
        [*header, *ORDER],
        [
            [*cells(name, kind.all), *order_cells(kind.ranking)]
            for name, kind in crossval.kinds.items()
        ],
        order="least left out first",
        drop=("worst regret", "bias"),
    )
    tier = Block(
        "Cross-validation: tier A",
        header=header,
        rows=[cells(name, kind.tier_a) for name, kind in crossval.kinds.items()],
        order="least left out first",
    )
    suites = Block(
        "Cross-validation by suite: MAPE",
        header=["suite", *(f">{name}" for name in crossval.kinds)],
        rows=[
            [
                suite,
                *(
                    percent(kind.suites[suite].mape if suite in kind.suites else None)
                    for kind in crossval.kinds.values()
                ),
            ]
            for suite in sorted({row.suite for row in crossval.rows})
        ],
        order="by suite",
    )
    values = Block(
        "Fitted on all suites",
        header=["number", ">factor", ">spread", ">runs", ">bounds", "on bound"],
        rows=[
            [
                value.name,
                f"{value.multiplier:.3f}",
                percent(value.spread),
                str(value.runs),
                f"{value.low:g} .. {value.high:g}",
                "yes" if value.on_bound else "",
            ]
            for value in crossval.parameters
        ],
        order="as fitted",
    )
    clocks = Block(
        "Clock of each platform",
        header=["platform", ">runs", ">fitted", ">spread", ">shipped", ">power law"],
        rows=[
            [
                clock.platform,
                str(clock.runs),
                f"{clock.fitted:.2f}",
                percent(clock.spread),
                f"{clock.shipped:.2f}",
                "-" if clock.power_law is None else f"{clock.power_law:.2f}",
            ]
            for clock in crossval.clocks
        ],
        order="by platform",
    )
    return [block for block in (over, tier, suites, values, clocks) if block.rows]


if __name__ == "__main__":
    runs = named(__doc__)
    noise = runs.document.summary.noise.mean
    show(*blocks(cross_validate(runs.cases, noise or 0.0), noise))
