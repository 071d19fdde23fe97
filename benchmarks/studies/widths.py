"""Half-widths of bands fitted to the interval score of validated runs.

Writes planner/data/band_widths.csv: the fit to all suites, and one without each suite, by which
that suite is judged.

    python -m benchmarks.studies.widths    seconds of a core
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from planner.evidence import band
from planner.evidence.band import LATER, ONE_SIDED, WIDENS, Residuals, Widths, sides, widening
from planner.evidence.spread import COVERAGE
from planner.evidence.weights import suite_members, suite_weight
from planner.inputs.tables import csv_text
from planner.ledger import Array

CORRELATION = 0.2  # of errors within a suite: how little each of its many runs counts
LATER_WEIGHT = 2.0  # weight of a run of a suite that was not in view
# shrinkage of coefficients towards PRIOR: a penalty of so much per unit squared, near the best
# interval score of suites left out, which is flat from 0.01 to 0.03
SHRINK = 0.02
# half of ln(half-width over the one of dense models with known software) that shares inside bands
# of one width imply for 195 runs predicted blind (docs/log/bands.md), normal errors taken
PRIOR = {
    "loop": 0.21,
    "experts": 0.6,
    "fp8": 0.21,
    "fp4": 0.2,
    "adapters": 0.34,
    "blackwell": 0.34,
    "amd": 0.62,
    band.NEW_GPU: 0.1,  # a choice: see SHRINK_OF
}
# ten times the shrinkage for a GPU that few suites show: predictions of these runs know the numbers
# of its profile, so that residuals say little of a GPU without any run
SHRINK_OF = {band.NEW_GPU: 10 * SHRINK}
# on the plain half-width, so that four fifths of a mean suite lie inside bands that did not see it
CONFORMAL = 1.06
_MISS = 2 / (1 - COVERAGE)  # of the interval score, per unit outside (Gneiting & Raftery 2007)
_SMOOTH = 0.005  # width over which the bend of the score is rounded, so that it has a gradient
_START, _RANGE = np.log(0.13), (-6.0, 2.0)  # of ln half-widths


def columns(runs: Residuals) -> dict[str, Array]:
    """WIDENS of each run beside all other suites."""
    new = 1.0 / (1 + _other_suites(runs.levels.gpu, runs.suite))
    return widening(runs.features, new, runs.predicted_mfu, np.where(runs.seen, 0.0, 1.0))


def fit(runs: Residuals) -> Widths:
    """The widths with the least penalised interval score, each suite weighed by `suite_weight`."""
    column = columns(runs)
    both = np.stack([column[name] for name in WIDENS], axis=1)
    one_sided = np.stack([column[name] for name in ONE_SIDED], axis=1)
    count, more = both.shape[1], one_sided.shape[1]
    below, above = (np.sqrt(np.sum(np.square(side), axis=1)) for side in sides(runs.features))
    weight = suite_weight(suite_members(runs.suite), CORRELATION)
    weight = weight * np.where(runs.seen, 1.0, LATER_WEIGHT)
    weight /= weight.sum()
    prior = np.array([*(PRIOR.get(name, 0.0) for name in WIDENS), *[0.0] * (2 * more)])
    shrink = np.array([*(SHRINK_OF.get(name, SHRINK) for name in WIDENS), *[SHRINK] * (2 * more)])

    def side(start: float, shared: Array, single: Array, unstated: Array, miss: Array) -> _Side:
        """Score of a side of the bands, and its gradients by start, shared, single."""
        half = np.exp(np.clip(start + both @ shared + one_sided @ single, *_RANGE))
        whole = np.hypot(half, unstated)
        beyond = (miss - whole) / _SMOOTH
        score = weight * (whole + _MISS * _SMOOTH * np.logaddexp(0.0, beyond))
        slope = weight * half**2 / whole * (1 - _MISS / (1 + np.exp(-np.clip(beyond, -500, 500))))
        return float(score.sum()), float(slope.sum()), both.T @ slope, one_sided.T @ slope

    def loss(x: Array) -> tuple[float, Array]:
        shared, own_below, own_above = np.split(x[2:], [count, count + more])
        low = side(x[0], shared, own_below, below, -runs.log_ratio)
        high = side(x[1], shared, own_above, above, runs.log_ratio)
        away = x[2:] - prior
        gradient = np.concatenate([low[2] + high[2], low[3], high[3]]) + 2 * shrink * away
        penalty = float(shrink @ away**2)
        return low[0] + high[0] + penalty, np.array([low[1], high[1], *gradient])

    start = np.array([_START, _START, *prior])
    x = minimize(loss, start, jac=True, method="L-BFGS-B").x
    shared, own_below, own_above = np.split(x[2:], [count, count + more])
    return Widths(
        x[0] + np.log(CONFORMAL),
        x[1] + np.log(CONFORMAL),
        dict(zip(WIDENS, shared.tolist(), strict=True)),
        dict(zip(ONE_SIDED, own_below.tolist(), strict=True)),
        dict(zip(ONE_SIDED, own_above.tolist(), strict=True)),
    )


def as_seen(widths: Widths) -> Widths:
    """Widths for runs of suites that were in view while the model was made."""
    return replace(widths, widens={**widths.widens, LATER: 0.0})


_Side = tuple[float, float, Array, Array]


def _other_suites(values: Array, suites: Array) -> Array:
    """Number of other suites with the value of every run."""
    _, value = np.unique(values, return_inverse=True)
    _, suite = np.unique(suites, return_inverse=True)
    pairs = np.unique(value.reshape(-1) * (suite.max() + 1) + suite.reshape(-1))
    having = np.bincount(pairs // (suite.max() + 1))
    return having[value.reshape(-1)] - 1


def lines(fitted: Mapping[str, Widths]) -> str:
    """CSV of widths by the suite that they were fitted without."""
    sided = [f"{name}_{side}" for side in ("below", "above") for name in ONE_SIDED]
    rows = [
        [
            without,
            *(
                f"{value:.4f}"
                for value in (
                    widths.below,
                    widths.above,
                    *widths.widens.values(),
                    *widths.below_of.values(),
                    *widths.above_of.values(),
                )
            ),
        ]
        for without, widths in fitted.items()
    ]
    return csv_text(["without", "below", "above", *WIDENS, *sided], rows)


def write() -> None:
    """Fit to the recorded residuals, and write."""
    runs = band.recorded()
    suites = sorted(set(runs.suite.tolist()))
    fitted = {"": fit(runs)} | {name: fit(runs.where(runs.suite != name)) for name in suites}
    band.WIDTHS.write_text(lines(fitted), encoding="utf-8")


if __name__ == "__main__":
    write()
