"""Curves fitted to merged records, with their residuals, confidence and outliers.

A fit that its data do not support is refused: too few cases, or errors so large that the curve says
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np

from planner.calibrate.record import Record
from planner.ledger import Array

# median error above which a curve is refused, and distance from it (log) above which a case is
# named as an outlier; choices
REFUSED_ABOVE, OUTLIER_ABOVE = 0.25, 0.20
_SPARE = 2  # cases beyond one per parameter that a fit needs; a choice
_LEAST_RANGE = 1e-30  # of a parameter, so that none is divided by zero


@dataclass(frozen=True)
class Number:
    """A fitted number with its standard error."""

    value: float
    error: float = 0.0


@dataclass(frozen=True)
class Fit:
    """One curve: its numbers, errors over fitted and held-out cases, and cases that lie far from
    it."""

    name: str
    numbers: Mapping[str, Number]
    cases: int
    median_error: float = 0.0
    worst_error: float = 0.0
    held_out: int = 0
    held_out_median: float | None = None
    outliers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fits:
    """All curves of a node; refused holds the reason of each curve that its data do not support."""

    fits: Mapping[str, Fit]
    refused: Mapping[str, str]

    def value(self, curve: str, number: str) -> float | None:
        fit = self.fits.get(curve)
        return None if fit is None or number not in fit.numbers else fit.numbers[number].value

    def joined(self, other: Fits) -> Fits:
        return Fits({**self.fits, **other.fits}, {**self.refused, **other.refused})


class Unsupported(ValueError):
    """The data do not support the fit."""


def attempted(attempts: Mapping[str, Callable[[], Fit]]) -> Fits:
    """Fits by name; one that is not supported is refused with its reason."""
    fits, refused = {}, {}
    for name, attempt in attempts.items():
        try:
            fits[name] = attempt()
        except Unsupported as why:
            refused[name] = str(why)
    return Fits(fits, refused)


def middle(values: Sequence[float]) -> Number:
    """The median, with half the range as its error."""
    return Number(float(median(values)), (max(values) - min(values)) / 2)


class Parameter(NamedTuple):
    """A number that a fit looks for between bounds."""

    name: str
    lowest: float
    start: float
    highest: float


def curve(
    name: str,
    parameters: Sequence[Parameter],
    predict: Callable[[Mapping[str, float], Sequence[Record]], Array],
    records: Sequence[Record],
    label: Callable[[Record], str],
) -> Fit:
    """Least squares of the log error with soft-L1 loss, so that an outlier pulls and does not
    decide.

    predict: seconds of records for values of the parameters by name; label: what a case is called.
    Raises Unsupported.
    """
    from scipy.optimize import least_squares

    fitted = [r for r in records if not r.get("held_out")]
    held_out = [r for r in records if r.get("held_out")]
    if len(fitted) < len(parameters) + _SPARE:
        raise Unsupported(
            f"{len(fitted)} cases for {len(parameters)} numbers; needs {len(parameters) + _SPARE}"
        )
    names = [p.name for p in parameters]
    low = np.array([p.lowest for p in parameters])
    start = np.array([p.start for p in parameters])
    high = np.array([p.highest for p in parameters])

    def residual(values: Array, over: Sequence[Record]) -> Array:
        measured = np.array([r["seconds"] for r in over])
        return np.log(predict(dict(zip(names, values, strict=True)), over) / measured)

    solution = least_squares(
        lambda values: residual(values, fitted),
        start,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=OUTLIER_ABOVE,
        x_scale=np.maximum(high - low, _LEAST_RANGE),
    )
    left = residual(solution.x, fitted)
    distance = np.abs(left)
    median_error = float(np.median(np.expm1(distance)))
    if median_error > REFUSED_ABOVE:
        raise Unsupported(
            f"the curve misses half of the {len(fitted)} cases by more than"
            f" {100 * median_error:.0f} %"
        )
    # covariance of a least-squares fit: the inverse of J^T J times the residual variance
    variance = float(np.sum(left**2)) / max(len(fitted) - len(parameters), 1)
    covariance = np.linalg.pinv(solution.jac.T @ solution.jac) * variance
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    unseen = np.expm1(np.abs(residual(solution.x, held_out))) if held_out else None
    return Fit(
        name,
        {
            p: Number(float(value), float(error))
            for p, value, error in zip(names, solution.x, errors, strict=True)
        },
        cases=len(fitted),
        median_error=median_error,
        worst_error=float(np.max(np.expm1(distance))),
        held_out=len(held_out),
        held_out_median=None if unseen is None else float(np.median(unseen)),
        outliers=tuple(
            label(r) for r, away in zip(fitted, distance, strict=True) if away > OUTLIER_ABOVE
        ),
    )
