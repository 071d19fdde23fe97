"""The spreads of the model of errors (planner/evidence/effects.py): those under which the recorded
residuals of suites left out are likeliest.

Prints the estimates beside those that ship, and the log likelihood of both. Takes minutes; needs
scipy. Suites weigh by the design effect of runs that err together, and estimates are pulled towards
the start where the runs say little.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import fields

import numpy as np
from scipy.optimize import minimize
from scipy.stats import t as student

from planner.evidence import band
from planner.evidence.effects import SPREADS, Evidence, Spreads, covariance
from planner.evidence.weights import suite_members, suite_weight
from planner.ledger import Array

_CORRELATION = 0.16  # of errors within a suite, as in the fits of validation
_FREEDOM = 5
_PULL = 0.007  # per squared log distance from the shipped value: a log spread of 0.7 at 150 suites
_LEVELS = ("everywhere", "hardware", "software")
_SIZES = tuple(one.name for one in fields(Spreads) if one.name not in _LEVELS)


def loss(runs: Evidence, spreads: Spreads) -> float:
    """Minus the mean log likelihood of each suite given all others."""
    inverse = np.linalg.inv(covariance(runs, spreads))
    scaled = inverse @ runs.log_ratio
    whole, weights = 0.0, 0.0
    for suite in sorted(set(runs.suite.tolist())):
        own = np.flatnonzero(runs.suite == suite)
        block = np.linalg.inv(inverse[np.ix_(own, own)])
        scale = np.sqrt(np.diag(block) + spreads.noise**2 * (1 - 1 / runs.runs[own]))
        size = block @ scaled[own] / scale  # what the others do not foresee, in scales
        n = float(runs.runs[own].sum())
        weight = runs.runs[own] * suite_weight(np.array([n]), _CORRELATION)
        whole += float((weight * (np.log(scale) - student.logpdf(size, _FREEDOM))).sum())
        weights += float(weight.sum())
    return whole / weights


def unpacked(at: Array) -> Spreads:
    """Spreads from logarithms of sizes and logits of levels."""
    levels = np.exp(np.append(at[len(_SIZES) :], 0.0))
    shares = dict(zip(_LEVELS, (levels / levels.sum()).tolist(), strict=False))
    return Spreads(**dict(zip(_SIZES, np.exp(at).tolist(), strict=False)), **shares)


def packed(spreads: Spreads) -> Array:
    rest = 1 - sum(getattr(spreads, name) for name in _LEVELS)
    sizes = [math.log(getattr(spreads, name)) for name in _SIZES]
    return np.array(sizes + [math.log(getattr(spreads, name) / rest) for name in _LEVELS])


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rounds", type=int, default=20, help="of the optimizer")
    rounds = asked.parse_args().rounds
    recorded = band.recorded()
    runs, start = band.model_of(recorded).evidence, packed(SPREADS)
    found = minimize(
        lambda at: loss(runs, unpacked(at)) + _PULL * float(((at - start) ** 2).sum()),
        start,
        method="L-BFGS-B",
        options={"maxiter": rounds},
    )
    best = unpacked(found.x)
    suites = len(set(recorded.suite.tolist()))
    effective = suite_weight(suite_members(recorded.suite), _CORRELATION).sum()
    print(f"{len(recorded)} runs, {suites} suites, {effective:.0f} independent runs")
    print(f"{'':12} {'shipped':>8} {'fitted':>8}")
    for name in (*_SIZES, *_LEVELS):
        print(f"{name:12} {getattr(SPREADS, name):8.3f} {getattr(best, name):8.3f}")
    print(f"{'-log L':12} {loss(runs, SPREADS):8.4f} {loss(runs, best):8.4f}")


if __name__ == "__main__":
    main()
