"""Choice of the next run of a calibration: the one that narrows predictions most.

Step times are linear in the logarithms of the numbers of a platform (`fit.Problem`), with a normal
prior: how sure the numbers are after some runs depends on their layouts alone, so that a run can be
judged before it is made (Bayesian experimental design, Chaloner and Verdinelli 1995, criterion V).
"""

from __future__ import annotations

import numpy as np

from planner.ledger import Array

_MEAN_ABSOLUTE = np.sqrt(2 / np.pi)  # of a normal variable of spread 1


def covariance(slopes: Array, spread: Array, noise: float) -> Array:
    """Covariance of the log multipliers after runs of these layouts: (multipliers, multipliers).

    slopes: (runs, multipliers) d log time / d log multiplier; spread: (multipliers,) standard
    deviations of the prior; noise: of the log error of a run around its platform.
    """
    precision = slopes.T @ slopes / noise**2 + np.diag(1 / spread**2)
    return np.asarray(np.linalg.inv(precision))


def with_run(known: Array, slopes: Array, noise: float) -> Array:
    """The covariance after one more run. slopes: (multipliers,) of its layout."""
    shared = known @ slopes
    return np.asarray(known - np.outer(shared, shared) / (noise**2 + slopes @ shared))


def gains(candidates: Array, wanted: Array, known: Array, noise: float) -> Array:
    """Mean variance of log step time that each candidate takes from the wanted layouts:
    (candidates,).

    candidates, wanted: slopes, (layouts, multipliers); known: the covariance before.
    """
    shared = wanted @ known @ candidates.T
    own = np.einsum("ij,jk,ik->i", candidates, known, candidates)
    return np.asarray(np.square(shared).mean(axis=0) / (noise**2 + own))


def remaining(residual: Array, usual: float, weight: float) -> float:
    """Spread of the log error of layouts once their platform is known: the usual one, as if from
    `weight` runs, and what these runs are still off by (scaled inverse chi-squared)."""
    squares = weight * usual**2 + float(np.square(residual).sum())
    return float(np.sqrt(squares / (weight + len(residual))))


def expected_error(wanted: Array, known: Array, noise: float) -> float:
    """Mean absolute error of log step time over the wanted layouts.

    noise: what remains of a layout when its platform is known.
    """
    variance = np.einsum("ij,jk,ik->i", wanted, known, wanted) + noise**2
    return float(_MEAN_ABSOLUTE * np.sqrt(variance).mean())
