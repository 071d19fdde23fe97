"""Divergence of replicas: hand-worked numbers, and drift against a run of random numbers."""

from __future__ import annotations

import numpy as np
import pytest

from planner.formulas import averaging, casts, collectives, input_pipeline, overlap, run_level
from planner.formulas.all_reduce import replicated_bytes
from planner.formulas.scaling import gustafson_speedup


def test_numbers_worked_by_hand() -> None:
    near = pytest.approx
    drift = averaging.drift_norm(0.1, 4, 3.0, 0.5, 2)
    assert drift == near(0.1 * np.sqrt(0.5 * (4 * 9 + 16 * 0.25)))  # 0.447
    assert averaging.shard_gradient_norm(3.0, 900) == near(0.1)
    assert averaging.moment_spread(1.0, 0.9) == near(0.22942, rel=1e-4)  # sqrt(0.1 / 1.9)
    # parts of 1 and 3 of 4 samples, each weighed 1/2: 2 x and 2/3 x
    assert averaging.plain_mean_weight(np.array([1, 3]), 4, 2) == near(np.array([2, 2 / 3]))
    # two steps of momentum 0.9: 1 and 1 + 0.9, over two steps of 1 each
    assert averaging.momentum_correction(0.9, 2) == near(1.45)
    assert averaging.local_clip_norm(1.0, 16) == near(0.25)
    assert averaging.variance_error_frac(33) == near(0.25)
    assert casts.least_kept_update_frac(7) == near(1 / 256)
    assert run_level.node_down_frac(96.0, 4.0) == near(0.04)
    assert run_level.nodes_up_frac(0.1, 2) == near(0.81)
    assert gustafson_speedup(64, 0.05) == near(60.85)  # 64 - 0.05 x 63
    assert input_pipeline.repeated_samples(10, 4) == near(2)
    assert replicated_bytes(8e9, 4, 2) == near(4e9)
    sent = collectives.broadcast_s(14e9, 64, latency_s=5e-6, bytes_per_s=25e9)
    assert sent == near(0.56 + 63 * 5e-6)
    assert overlap.best_bucket_bytes(1e8, 4e-5, 1e10) == near(6.3246e6, rel=1e-4)


def test_the_least_kept_update_is_that_of_numpy() -> None:
    least = casts.least_kept_update_frac(10)
    first = np.float16(1)
    assert first + np.float16(least) == first  # a tie, which goes to the even number
    assert first + np.float16(1.01 * least) > first


def test_the_best_bucket_has_the_least_of_starts_and_tail() -> None:
    sizes = np.geomspace(1e5, 1e9, 4001)
    cost = 1.4e10 / sizes * 3e-5 + sizes / 1e10
    assert sizes[cost.argmin()] == pytest.approx(
        overlap.best_bucket_bytes(1.4e10, 3e-5, 1e10), rel=0.01
    )


def test_drift_is_that_of_replicas_that_walk_alone() -> None:
    """Replicas that add up gradients of their own mean and noise for H steps, about their
    average."""
    rng, (replicas, steps, size) = np.random.default_rng(1), (8, 20, 4000)
    ours = rng.normal(0, 0.3, (replicas, 1, size))
    walked = 0.01 * (ours + rng.normal(0, 1.0, (replicas, steps, size))).sum(1)
    root = np.sqrt(((walked - walked.mean(0)) ** 2).mean())
    assert root == pytest.approx(averaging.drift_norm(0.01, steps, 1.0, 0.3, replicas), rel=0.02)


def test_a_moment_spreads_as_an_exponential_average_does() -> None:
    noise, moment, result = np.random.default_rng(2).normal(size=(200, 4000)), 0.0, 0.0
    for step in noise:
        moment = 0.9 * moment + 0.1 * step
        result = float(np.std(moment))
    assert result == pytest.approx(averaging.moment_spread(1.0, 0.9), rel=0.03)
