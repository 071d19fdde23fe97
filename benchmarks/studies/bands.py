"""Do the shipped bands hold what they promise: each run against a band from residuals without its
suite, its GPU, its software, or its kind.

    python -m benchmarks.studies.bands [--suite SUITE] [RUNS.csv ...]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.studies.residuals import time_rows
from benchmarks.studies.runs import named, show
from benchmarks.studies.widths import CORRELATION, as_seen, fit
from planner.evidence.band import Residuals, recorded, residuals, widened
from planner.evidence.spread import COVERAGE, SIDE
from planner.evidence.weights import suite_members
from planner.ledger import Array
from planner.units import percent
from planner.views.view import Block

_LARGE = 128  # GPUs
_MUCH = 0.1  # share of the step from which a mechanism makes the kind of a run


@dataclass(frozen=True)
class BandLine:
    """Bands that did not see some runs, over these."""

    n: int  # runs
    inside: int  # of these, inside the band
    inside_frac: float | None  # share of them; null without runs
    low: float | None  # mean lower end, as measured over predicted
    high: float | None  # mean upper end, likewise
    width: float | None  # mean of high minus low
    score: float | None  # mean interval score on the logarithm; smaller is better
    suites: int  # suites of the runs
    mean_of_suites: float | None  # mean over them of the share inside
    score_of_suites: float | None  # mean over them of their scores
    # standard errors of inside_frac and mean_of_suites if the band were right (`_chance`)
    error: float | None
    error_of_suites: float | None


@dataclass(frozen=True)
class LeftOut:
    """Bands of the shipped residuals, without a run's suite and without what else is left out."""

    all: BandLine  # all runs
    suites: dict[str, BandLine]  # by suite
    evidence: dict[str, BandLine]  # by whether the residuals left share its GPU and its software
    kinds: dict[str, BandLine]  # by what takes the time: offload, mixture of experts, ...


@dataclass(frozen=True)
class Coverage:
    """Whether the shipped bands hold what they promise."""

    promised: float  # share of runs that a band should hold
    # by what is left out with a run's suite: suites (nothing else), GPUs, software, kinds
    left_out: dict[str, LeftOut]
    one_band: LeftOut  # one band for all runs instead: quantiles of the runs of all other suites


def coverage(rows: Sequence[Mapping[str, Any]] | None = None) -> Coverage:
    """Share of runs inside bands of the shipped residuals, and the width of the bands, by the rows
    left out of them.

    rows: as of `residuals.time_rows`; by default the shipped residuals, in which each run is
    predicted by numbers fitted without its suite, beside suites never in view. `score` is
    the mean interval score (Gneiting & Raftery 2007, equation 43) on ln(measured over predicted):
    width plus the distance of what fell outside, 2/(1 - coverage) fold; smaller is better.
    """
    known = recorded()
    runs = known if rows is None else residuals(rows)
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

    def line(labels: Array) -> BandLine:
        chosen = np.asarray(labels, dtype=bool)
        return _line(value[chosen], low[chosen], high[chosen], runs.suite[chosen])

    def lines(labels: Array) -> dict[str, BandLine]:
        return {name: line(labels == name) for name in sorted(set(labels.tolist()))}

    kinds = {name: line(label_of(runs)) for name, label_of in _KINDS.items()}
    return LeftOut(
        all=line(np.ones(len(runs), dtype=bool)),
        suites=lines(runs.suite),
        evidence=lines(near),
        kinds={name: line for name, line in kinds.items() if line.n},
    )


def ends(
    runs: Residuals, key: Callable[[Residuals], Array], known: Residuals
) -> tuple[Array, Array]:
    """Both ends of the band of each run, as ln(measured over predicted), of the known runs that
    share neither its value of `key` nor its suite."""
    low, high = np.zeros(len(runs)), np.zeros(len(runs))
    keys, theirs = key(runs), key(known)
    for name, suite in sorted(set(zip(keys.tolist(), runs.suite.tolist(), strict=True))):
        others = known.where((theirs != name) & (known.suite != suite))
        fitted = fit(others)
        for row in np.flatnonzero((keys == name) & (runs.suite == suite)):
            widths = as_seen(fitted) if runs.seen[row] else fitted
            low[row], high[row] = np.log(widened(widths, others, runs.case(int(row)))[0].ends())
    return low, high


# kinds of runs, by what takes the time; a run can have several
_KINDS: dict[str, Callable[[Residuals], Array]] = {
    "dense, 16 bit, a known program": lambda r: (
        sum(r.feature(name) for name in ("loop", "experts", "parts", "fp8", "adapters")) == 0
    ),
    "FSDP and Hugging Face": lambda r: np.array(
        ["fsdp" in stack or stack.startswith("hf-") for stack in r.levels.stack.tolist()]
    ),
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
        out[np.asarray(_KINDS[name](runs), dtype=bool)] = name
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
    keys, theirs = key(runs), key(known)
    out = np.full(len(runs), "neither", dtype="<U21")
    for i in range(len(runs)):
        others = (theirs != keys[i]) & (known.suite != runs.suite[i])
        gpu = bool((known.levels.gpu[others] == runs.levels.gpu[i]).any())
        stack = bool((known.levels.stack[others] == runs.levels.stack[i]).any())
        if gpu or stack:
            out[i] = (
                "same GPU and software" if gpu and stack else "same GPU" if gpu else "same software"
            )
    return out


def _line(value: Array, low: Array, high: Array, suite: Array) -> BandLine:
    n = len(value)
    if not n:
        return BandLine(0, 0, None, None, None, None, None, 0, None, None, None, None)
    inside = (value >= low) & (value <= high)
    missed = np.maximum(low - value, 0) + np.maximum(value - high, 0)
    score = high - low + 2 / (1 - COVERAGE) * missed
    of_suite = 1 / suite_members(suite)
    members = np.unique(suite, return_counts=True)[1]
    return BandLine(
        n=n,
        inside=int(inside.sum()),
        inside_frac=float(inside.mean()),
        low=float(np.exp(low).mean()),
        high=float(np.exp(high).mean()),
        width=float((np.exp(high) - np.exp(low)).mean()),
        score=float(score.mean()),
        suites=len(set(suite.tolist())),
        mean_of_suites=float(np.average(inside, weights=of_suite)),
        score_of_suites=float(np.average(score, weights=of_suite)),
        error=_chance(members / n, members),
        error_of_suites=_chance(np.ones(len(members)) / len(members), members),
    )


def _chance(weight: Array, members: Array) -> float:
    """Standard error of a weighted mean over suites of their shares inside, if the band held what
    it promises: a binomial of each suite's runs with the design effect of errors that correlate
    within it (Kish 1965). weight: of each suite, 1 in all; members: its runs."""
    of_suite = COVERAGE * (1 - COVERAGE) * (1 + (members - 1) * CORRELATION) / members
    return float(np.sqrt(np.sum(weight**2 * of_suite)))


_BAND = [
    *(">runs", ">suites", ">low", ">high"),
    *(">inside", ">+-", ">mean of suites", ">+-", ">score", ">score of suites"),
]


def _band_cells(line: BandLine) -> list[str]:
    """Cells under `_BAND`."""
    inside = [
        percent(line.inside_frac),
        percent(line.error),
        percent(line.mean_of_suites),
        percent(line.error_of_suites),
    ]
    low, high, *scores = map(_score, (line.low, line.high, line.score, line.score_of_suites))
    return [str(line.n), str(line.suites), low, high, *inside, *scores]


def _score(x: float | None) -> str:
    return "-" if x is None else f"{x:.2f}"


def blocks(coverage: Coverage) -> list[Block]:
    """The shipped bands by what was left out of them, by what takes the time, and by suite."""
    over = Block(
        "Do the shipped bands hold",
        [
            f"promised {coverage.promised:.0%} of runs; each run by the band of all suites but its"
            " own, and without what the line names; scores are interval scores, smaller is better"
        ],
        header=["left out", *_BAND],
        rows=[
            [name, *_band_cells(line.all)]
            for name, line in {**coverage.left_out, "one band for all": coverage.one_band}.items()
        ],
        order="least left out first",
    )
    only = coverage.left_out["suites"]
    if not only.all.n:
        return [Block("Do the shipped bands hold", ["no run with a time"])]
    parts = (
        ("what the others share", "most first", only.evidence),
        ("kind", "as declared", only.kinds),
        ("suite", "by name", only.suites),
    )
    return [over] + [
        Block(
            f"Bands by {name}",
            header=[name, *_BAND],
            rows=[[label, *_band_cells(line)] for label, line in lines.items()],
            order=order,
        )
        for name, order, lines in parts
        if lines
    ]


if __name__ == "__main__":
    runs = named(__doc__)
    show(*blocks(coverage(None if runs.shipped else time_rows(runs.document.rows))))
