"""The model of errors behind the bands: what a plan's GPU, software and mechanisms have shown so
far, and what they may still hide.

The logarithm of measured over predicted step time is a sum over FEATURES of feature x effect, and
noise. An effect is itself a sum of independent parts: one that all runs share, one of the GPU
(half of it of the architecture), one of the software (half of it of its family), and one of the
suite, which no other run shares. All are normal with mean zero before any run is seen, so that the
runs that were seen give mean and variance of the next in closed form (Rasmussen & Williams 2006,
Gaussian Processes, equations 2.25 and 2.26): what nothing alike was measured of keeps its whole
variance, and what many suites agree on loses nearly all but that of a new suite.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.evidence.case import FEATURES, Case
from planner.ledger import Array


@dataclass(frozen=True)
class Spreads:
    """Standard deviations of effects, per unit of each feature, and how they divide over levels.

    They are estimates: `benchmarks/spreads.py` finds those under which runs of suites left out are
    most likely, over the recorded residuals. Mechanisms whose own spread the runs do not tell apart
    share one, which is also what a mechanism gets that no run has shown.
    """

    general: float = 0.15  # every run
    mechanism: float = 0.21  # share of the step spent in any one mechanism
    # of an update that is the whole step, on a host of which nothing is known; share of copies
    offload: float = 1.7
    experts: float = 0.07  # mixtures of experts beside dense models
    fp8: float = 0.13  # 8-bit GEMMs beside 16-bit ones
    small: float = 0.06  # every halving of the work of a kernel
    long: float = 0.03  # every doubling of the sequence, where attention takes the whole step
    scale: float = 0.009  # every doubling of GPUs
    noise: float = 0.075  # single runs of a suite
    # shares of the variance of an effect; the rest is that of the suite
    everywhere: float = 0.08
    hardware: float = 0.19
    software: float = 0.49

    def of_features(self) -> Array:
        """One standard deviation per feature."""
        return np.array([getattr(self, name, self.mechanism) for name in FEATURES])


SPREADS = Spreads()


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

    @classmethod
    def of(cls, case: Case) -> Levels:
        """Those of one case."""
        names = (case.architecture, case.gpu, case.family, case.stack)
        return cls(*(np.array([name]) for name in names))


def alike(s: Spreads, a: Levels, b: Levels) -> Array:
    """Correlation of the effects of each run of a with those of each run of b, of another suite."""

    def same(name: str) -> Array:
        return (getattr(a, name)[:, None] == getattr(b, name)[None, :]).astype(float)

    hardware = 0.5 * (same("architecture") + same("gpu"))
    software = 0.5 * (same("family") + same("stack"))
    return s.everywhere + s.hardware * hardware + s.software * software


@dataclass(frozen=True)
class Evidence:
    """Runs as the model sees them: of each a line of features, levels, suite, ln(measured over
    predicted), and of how many runs it is the mean."""

    features: Array
    levels: Levels
    suite: Array
    log_ratio: Array
    runs: Array

    def where(self, mask: Array) -> Evidence:
        """Some of them."""
        return Evidence(
            self.features[mask],
            self.levels.where(mask),
            self.suite[mask],
            self.log_ratio[mask],
            self.runs[mask],
        )


@dataclass(frozen=True)
class Forecast:
    """ln(measured over predicted) of the next run of a case, in a suite nobody has seen.

    parts: of the variance, by feature, and of the noise of single runs as `noise`.
    """

    mean: float
    variance: float
    parts: dict[str, float]


@dataclass(frozen=True)
class Model:
    """The errors of the next run, given these."""

    evidence: Evidence
    spreads: Spreads = SPREADS

    @cached_property
    def inverse(self) -> Array:
        """Of the covariance of the evidence."""
        return np.linalg.inv(covariance(self.evidence, self.spreads))

    @cached_property
    def weights(self) -> Array:
        """What each run adds to the mean of another per unit of their covariance."""
        return self.inverse @ self.evidence.log_ratio

    def next(self, case: Case) -> Forecast:
        """The next run of this case."""
        s, runs = self.spreads, self.evidence
        spread, given = s.of_features(), np.array(case.features)
        noise = s.noise**2
        # covariance of each feature's effect in this run with every run of the evidence
        shared = alike(s, Levels.of(case), runs.levels)
        each = (spread**2 * given)[:, None] * runs.features.T * shared
        left = (spread * given) ** 2 - (each @ self.inverse * each).sum(axis=1)
        together = each.sum(axis=0)
        known = together @ self.inverse @ together
        variance = float(((spread * given) ** 2).sum() - known)
        parts = dict(zip(FEATURES, np.maximum(left, 0.0).tolist(), strict=True))
        return Forecast(float(together @ self.weights), variance + noise, parts | {"noise": noise})

    def ahead(self, levels: Levels, features: Array) -> tuple[Array, Array]:
        """Mean and variance of the next run of many cases."""
        s, runs = self.spreads, self.evidence
        spread = s.of_features()
        shared = (features * spread**2) @ runs.features.T * alike(s, levels, runs.levels)
        known = (shared @ self.inverse * shared).sum(axis=1)
        whole = ((features * spread) ** 2).sum(axis=1)
        return shared @ self.weights, whole - known + s.noise**2


def covariance(runs: Evidence, s: Spreads) -> Array:
    """Covariance of the log ratios of these runs."""
    spread = s.of_features() * runs.features
    same_suite = runs.suite[:, None] == runs.suite[None, :]
    correlation = alike(s, runs.levels, runs.levels)
    correlation[same_suite] += 1 - s.everywhere - s.hardware - s.software
    return (spread @ spread.T) * correlation + np.diag(s.noise**2 / runs.runs)
