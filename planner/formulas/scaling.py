"""How a time falls with the number of GPUs: Amdahl's law and its fit, efficiency, what one more GPU
adds, what makes the loss."""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula


@formula(unit="s", equation="serial + parallel / n", source="Amdahl 1967, AFIPS 30, 483-485")
def amdahl_s(serial_s: Array, parallel_s: Array, gpus: Array) -> Array:
    """Time of a step on n GPUs; the parallel part is its time on one GPU."""
    return serial_s + parallel_s / gpus


@formula(unit="1", equation="n - s (n - 1)", source="Gustafson 1988, CACM 31(5), 532-533")
def gustafson_speedup(gpus: Array, serial_frac: Array) -> Array:
    """How much more work n GPUs do in the same time when the parallel part grows with them (weak
    scaling); s: share of that time that is serial."""
    return gpus - serial_frac * (gpus - 1)


def amdahl_fit(gpus: Array, seconds: Array) -> tuple[float, float]:
    """(serial, parallel) seconds, neither negative, that follow these times best: least squares of
    relative errors."""
    n, taken = np.asarray(gpus, float), np.asarray(seconds, float)
    columns = np.stack([1 / taken, 1 / (n * taken)], axis=1)
    ones = np.ones(len(taken))
    scale = np.linalg.norm(columns, axis=0)
    best = np.linalg.lstsq(columns / scale, ones, rcond=None)[0] / scale
    if best.min() < 0:  # one of the parts is zero: only the other counts
        alone = columns.sum(axis=0) / (columns**2).sum(axis=0)
        misses = ((columns * alone - 1) ** 2).sum(axis=0)
        best = np.where(np.arange(2) == misses.argmin(), alone, 0.0)
    return float(best[0]), float(best[1])


@formula(unit="1", equation="(R / n) / (R0 / n0)", source="definition")
def efficiency(
    tokens_per_s: Array, gpus: Array, first_tokens_per_s: Array, first_gpus: Array
) -> Array:
    """Throughput per GPU over throughput per GPU at the first count: strong scaling at a fixed
    batch, weak scaling at a fixed batch per GPU."""
    return tokens_per_s / gpus / (first_tokens_per_s / first_gpus)


@formula(unit="1", equation="((R - R') / (n - n')) / (R0 / n0)", source="definition")
def marginal_frac(
    tokens_per_s: Array,
    gpus: Array,
    before_tokens_per_s: Array,
    before_gpus: Array,
    first_tokens_per_s: Array,
    first_gpus: Array,
) -> Array:
    """Marginal throughput per added GPU, over the throughput per GPU at the first count."""
    return (
        (tokens_per_s - before_tokens_per_s)
        / (gpus - before_gpus)
        / (first_tokens_per_s / first_gpus)
    )


@formula(unit="1", equation="(exposed + hidden) / computation", source="definition")
def communication_ratio(exposed_s: Array, hidden_s: Array, compute_s: Array) -> Array:
    """Communication time of a step over its computation time. Hidden communication counts: it is
    exposed as computation shrinks."""
    return (exposed_s + hidden_s) / compute_s


@formula(
    unit="s",
    equation="(a - b) / ln(a / b)",
    source="logarithmic mean: changes of summands over it add up to ln(a / b)",
)
def log_mean_s(after_s: Array, before_s: Array) -> Array:
    """Logarithmic mean of two positive times; their common value where they are equal.

    With it the logarithm of a ratio of sums falls apart into a part per summand, exactly and in no
    order: ln(a / b) = sum of (a_i - b_i) / mean.
    """
    change = (after_s - before_s) / before_s
    apart = np.abs(change) > 0
    return np.where(apart, (after_s - before_s) / np.where(apart, np.log1p(change), 1.0), before_s)
