"""Do the shipped bands hold what they promise: each run against a band from residuals without its
suite, its GPU, its software, or its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from planner.evidence.band import Residuals, missed, novelty, recorded, residuals, widened
from planner.evidence.spread import COVERAGE, SIDE
from planner.ledger import Array
from planner.studies.documents.validate import BandLine, Coverage, LeftOut, Run
from planner.studies.validate.predict import has_time
from planner.studies.validate.rows import SHIPPED

# what a residual says of its run beside features and ratios: columns of planner/data/residuals.csv
RESIDUAL_COLUMNS = ("run_id", "suite", "gpu", "architecture", "stack", "family")

_LONG = 32768  # tokens per sequence
_LARGE = 128  # GPUs
_MUCH = 0.1  # share of the step from which a mechanism makes the kind of a run


def residual_rows(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Runs with a time, as measured over predicted: the columns of planner/data/residuals.csv.

    Predicted is `unseen_step_s`, by numbers fitted without the run's suite, which is the case of a
    plan that has not been measured. Without it, and in `measured_over_default`, it is the
    prediction of the shipped numbers. `seen`: its suite was in view while these were chosen.
    """
    seen = {file.stem for file in SHIPPED.glob("*.csv")}
    return [
        {
            **{name: getattr(run, name) for name in RESIDUAL_COLUMNS},
            **run.features,
            "seen": int(run.suite in seen),
            "mfu": run.mfu * run.predicted_step_s / run.measured_step_s,
            "measured_over_predicted": run.measured_step_s
            / (run.unseen_step_s or run.predicted_step_s),
            "measured_over_default": run.measured_step_s / run.predicted_step_s,
        }
        for run in runs
        if has_time(run) and run.measured_step_s
    ]


def coverage(found: Sequence[Run], *, shipped: bool) -> Coverage:
    """Share of runs inside bands of the shipped residuals, and the width of the bands, by the rows
    that were left out of them.

    shipped: these are the shipped runs, which stand in the residuals as predicted without their
    suite, beside rows of suites never in view; else they are `found`, as the shipped numbers
    predict them. `score` is the mean interval score (Gneiting & Raftery 2007, equation 43) on
    ln(measured over predicted): width plus the distance of what fell outside, 2/(1 - coverage)
    fold; smaller is better.
    """
    known = recorded()
    runs = known if shipped else residuals(residual_rows(found))
    return Coverage(
        promised=COVERAGE,
        left_out={
            name: _judged(runs, *ends(runs, key, known), _evidence(runs, key, known))
            for name, key in _SCHEMES.items()
        },
        one_band=_judged(runs, *one_band(runs, known), _evidence(runs, _SCHEMES["suites"], known)),
    )


def one_band(runs: Residuals, known: Residuals) -> tuple[Array, Array]:
    """Baseline of bands: the same quantiles for every run, of the known runs of other suites."""
    low, high = np.zeros(len(runs)), np.zeros(len(runs))
    for name in sorted(set(runs.suite.tolist())):
        others = known.log_ratio[known.suite != name]
        at = runs.suite == name
        low[at], high[at] = np.quantile(others, [1 - SIDE, SIDE]) if len(others) else (0, 0)
    return low, high


def _judged(runs: Residuals, low: Array, high: Array, near: Array) -> LeftOut:
    """Each run in its band."""
    value = runs.log_ratio

    def lines(of: Array) -> dict[str, BandLine]:
        names = sorted(set(of.tolist()))
        return {name: _line(value, low, high, of == name) for name in names}

    suites = lines(runs.suite)
    judged = [line for line in suites.values() if line.n]
    kinds = {name: _line(value, low, high, of(runs)) for name, of in _KINDS.items()}
    return LeftOut(
        all=_line(value, low, high, np.ones(len(runs), dtype=bool)),
        mean_of_suites=_mean([line.inside_frac for line in judged]),
        score_of_suites=_mean([line.score for line in judged]),
        suites=suites,
        evidence=lines(near),
        kinds={name: line for name, line in kinds.items() if line.n},
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def ends(
    runs: Residuals, key: Callable[[Residuals], Array], known: Residuals
) -> tuple[Array, Array]:
    """Both ends of the band of each run, as ln(measured over predicted), of the known runs that
    share neither its value of `key` nor its suite."""
    low, high = np.zeros(len(runs)), np.zeros(len(runs))
    own, theirs = key(runs), key(known)
    for name, suite in sorted(set(zip(own.tolist(), runs.suite.tolist(), strict=True))):
        others = known.where((theirs != name) & (known.suite != suite))
        around = missed(others)
        for row in np.flatnonzero((own == name) & (runs.suite == suite)):
            case = runs.case(int(row))
            found, _ = widened(around, case, novelty(others, case))
            low[row], high[row] = np.log(found.ends())
    return low, high


# kinds of runs, by what takes the time; a run can be of several
_KINDS: dict[str, Callable[[Residuals], Array]] = {
    "offload": lambda r: r.feature("offload") > 0,
    "mixture of experts": lambda r: r.feature("experts") > 0,
    "8-bit GEMMs": lambda r: r.feature("fp8") > 0,
    "4-bit GEMMs": lambda r: r.feature("fp4") > 0,
    "Blackwell": lambda r: r.feature("blackwell") > 0,
    "AMD": lambda r: r.feature("amd") > 0,
    "a training loop of one's own": lambda r: r.feature("loop") > 0,
    "adapters": lambda r: r.feature("adapters") > 0,
    "adapters on a quantised base": lambda r: r.feature("quantised") > 0,
    "attention, long sequences": lambda r: r.feature("long") > _MUCH,
    "launch-bound": lambda r: r.feature("launch") > _MUCH,
    "exposed communication": lambda r: (
        sum(r.feature(name) for name in ("tensor", "expert", "data")) > 2 * _MUCH
    ),
    "pipeline bubble": lambda r: r.feature("waiting") > _MUCH,
    f"more than {_LARGE} GPUs": lambda r: r.feature("scale") > np.log2(_LARGE),
    "suites never in view": lambda r: ~r.seen,
}


def _kind(runs: Residuals) -> Array:
    """The first of its kinds, by which runs are left out."""
    names = list(_KINDS)[:-2]
    out = np.full(len(runs), "other", dtype="<U30")
    for name in reversed(names):
        out[_KINDS[name](runs)] = name
    return out


# what is left out of the residuals that make a run's band, its suite always
_SCHEMES: dict[str, Callable[[Residuals], Array]] = {
    "suites": lambda r: r.suite,
    "GPUs": lambda r: r.levels.gpu,
    "software": lambda r: r.levels.stack,
    "kinds": _kind,
}


def _evidence(runs: Residuals, key: Callable[[Residuals], Array], known: Residuals) -> Array:
    """Features that the residuals behind each run's band share with it."""
    own, theirs = key(runs), key(known)
    out = np.full(len(runs), "neither", dtype="<U21")
    for i in range(len(runs)):
        others = (theirs != own[i]) & (known.suite != runs.suite[i])
        gpu = bool((known.levels.gpu[others] == runs.levels.gpu[i]).any())
        stack = bool((known.levels.stack[others] == runs.levels.stack[i]).any())
        if gpu or stack:
            out[i] = (
                "same GPU and software" if gpu and stack else "same GPU" if gpu else "same software"
            )
    return out


def _line(value: Array, low: Array, high: Array, of: Array) -> BandLine:
    value, low, high = value[of], low[of], high[of]
    n = len(value)
    if not n:
        return BandLine(
            n=0, inside=0, inside_frac=None, low=None, high=None, width=None, score=None
        )
    inside = (value >= low) & (value <= high)
    missed = np.maximum(low - value, 0) + np.maximum(value - high, 0)
    return BandLine(
        n=n,
        inside=int(inside.sum()),
        inside_frac=float(inside.mean()),
        low=float(np.exp(low).mean()),
        high=float(np.exp(high).mean()),
        width=float((np.exp(high) - np.exp(low)).mean()),
        score=float((high - low + 2 / (1 - COVERAGE) * missed).mean()),
    )
