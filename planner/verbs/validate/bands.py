"""Do the bands hold what they promise: each suite's runs against bands made from all other
suites."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from planner.evidence.band import COVERAGE, Case, Residuals, band_of, residuals
from planner.ledger import Array
from planner.specs.documents.validate import BandLine, Coverage, Run
from planner.verbs.validate.predict import has_time

# what a residual says of its run beside the ratios: columns of planner/data/residuals.csv
RESIDUAL_COLUMNS = ("run_id", "suite", "gpu", "stack", "gpus", "parameters", "experts")


def residual_rows(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Runs with a time, as measured over predicted: the columns of planner/data/residuals.csv.

    Predicted is `unseen_step_s`, by numbers fitted without the run's suite, which is what a plan
    nobody has measured meets. Without it, and in `measured_over_default`, it is the prediction of
    the shipped numbers.
    """
    return [
        {
            **{name: getattr(run, name) for name in RESIDUAL_COLUMNS},
            "measured_over_predicted": run.measured_step_s
            / (run.unseen_step_s or run.predicted_step_s),
            "measured_over_default": run.measured_step_s / run.predicted_step_s,
        }
        for run in runs
        if has_time(run) and run.measured_step_s
    ]


def coverage(found: Iterable[Run]) -> Coverage:
    """Share of each suite's runs inside the bands that all other suites give, and how wide these
    bands are.

    `score` is the mean interval score (Gneiting & Raftery 2007, equation 43) on ln(measured over
    predicted): width plus the distance of what fell outside, 2/(1 - coverage) fold; smaller is
    better.
    """
    runs = residuals(residual_rows(found))
    lines: dict[str, BandLine] = {}
    low, high = np.zeros(len(runs)), np.zeros(len(runs))
    near = np.empty(len(runs), dtype=object)
    for suite in sorted(set(runs.suite.tolist())):
        own = runs.suite == suite
        others = runs.where(~own)
        if not len(others):
            continue
        for i in np.flatnonzero(own):
            case = Case(
                str(runs.gpu[i]),
                str(runs.stack[i]),
                int(runs.gpus[i]),
                float(runs.parameters[i]),
                bool(runs.experts[i]),
            )
            band = band_of(others, case)
            low[i], high[i] = math.log(band.low), math.log(band.high)
            near[i] = _evidence(others, case)
        lines[suite] = _line(runs.log_ratio[own], low[own], high[own])
    if not lines:
        nothing = np.zeros(0)
        return Coverage(
            promised=COVERAGE,
            all=_line(nothing, nothing, nothing),
            mean_of_suites=None,
            suites={},
            evidence={},
        )
    return Coverage(
        promised=COVERAGE,
        all=_line(runs.log_ratio, low, high),
        mean_of_suites=sum(line.inside_frac or 0.0 for line in lines.values()) / len(lines),
        suites=lines,
        evidence={
            kind: _line(runs.log_ratio[near == kind], low[near == kind], high[near == kind])
            for kind in _KINDS
            if (near == kind).any()
        },
    )


_KINDS = ("same GPU and software", "same GPU", "same software", "neither")


def _evidence(others: Residuals, case: Case) -> str:
    gpu, stack = others.gpu == case.gpu, others.stack == case.stack
    if (gpu & stack).any():
        return _KINDS[0]
    return _KINDS[1] if gpu.any() else _KINDS[2] if stack.any() else _KINDS[3]


def _line(value: Array, low: Array, high: Array) -> BandLine:
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
