"""Choice of the next run of a calibration: the one that narrows predictions most.

Step times are linear in the logarithms of the numbers of a platform (`fit.Problem`), with a normal
prior. How sure the numbers are after some runs depends on the layouts of the runs and not on their
times, so that a run can be judged before it is made (Bayesian experimental design, Chaloner and
Verdinelli 1995, criterion V).
"""

from __future__ import annotations

from collections.abc import Sequence

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


def likeness(slopes: Array, spread: Array, noise: float) -> Array:
    """Prior covariance of the log errors of layouts: what they share by the numbers of the
    platform, and what layouts share whose steps hang on the numbers alike: (layouts, layouts).

    slopes: (layouts, multipliers); spread: (multipliers,); noise: of a run around its platform,
    taken for the second part, too, with the median distance of two layouts as its length. Without
    it the layouts that differ most from all others are chosen, which say least of the rest.
    """
    scaled = slopes * spread
    squares = np.square(scaled[:, None] - scaled[None]).sum(axis=-1)
    apart = squares[squares > 0]
    length = np.median(apart) if apart.size else 1.0
    return np.asarray(scaled @ scaled.T + noise**2 * np.exp(-squares / (2 * length)))


def gains(prior: Array, taken: Sequence[int], noise: float) -> Array:
    """Variance of log step time, mean over all layouts, that a run of each layout would take away:
    (layouts,). prior: see `likeness`; taken: layouts of the runs that there are."""
    runs = list(taken)
    of_runs = prior[np.ix_(runs, runs)] + noise**2 * np.eye(len(runs))
    after = prior - prior[:, runs] @ np.linalg.solve(of_runs, prior[runs])
    return np.asarray(np.square(after).mean(axis=0) / (noise**2 + np.diag(after)))


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
