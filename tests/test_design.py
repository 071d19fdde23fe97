"""Choice of the next run of a calibration: laws of the normal posterior, worked by hand."""

import numpy as np
import pytest

from planner.studies.validate import design

SPREAD = np.array([0.06, 0.2])


def test_no_run_leaves_the_prior() -> None:
    assert design.covariance(np.zeros((0, 2)), SPREAD, 0.1) == pytest.approx(np.diag(SPREAD**2))


def test_one_run_by_hand() -> None:
    """Prior variance 0.04, noise 0.01: 1 / (25 + 100)."""
    known = design.covariance(np.array([[0.0, 1.0]]), SPREAD, 0.1)
    assert known == pytest.approx(np.diag([0.0036, 0.008]))
    updated = design.with_run(np.diag(SPREAD**2), np.array([0.0, 1.0]), 0.1)
    assert updated == pytest.approx(known)


def test_a_gain_is_what_the_run_takes_from_the_variance() -> None:
    layouts = np.random.default_rng(0).normal(size=(6, 2))
    prior = design.likeness(layouts, SPREAD, 0.1)

    def variance(runs: list[int]) -> float:
        inner = prior[np.ix_(runs, runs)] + 0.01 * np.eye(len(runs))
        after = prior - prior[:, runs] @ np.linalg.inv(inner) @ prior[runs]
        return float(np.diag(after).mean())

    gains = design.gains(prior, [1, 4], 0.1)
    for i in (0, 2, 3, 5):
        assert gains[i] == pytest.approx(variance([1, 4]) - variance([1, 4, i]))


def test_a_layout_like_many_tells_more_than_one_apart() -> None:
    layouts = np.array([[0.5, 0.5]] * 8 + [[0.0, 1.0]])
    gains = design.gains(design.likeness(layouts, SPREAD, 0.1), [], 0.1)
    assert gains[0] > gains[-1]


def test_the_expected_error_falls_with_runs_to_what_remains() -> None:
    layouts = np.array([[0.8, 0.1], [0.4, 0.5]])
    errors = [
        design.expected_error(
            layouts, design.covariance(np.tile(layouts, (n, 1)), SPREAD, 0.1), rest
        )
        for n, rest in ((0, 0.05), (1, 0.05), (1000, 0.05), (1000, 0.0))
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[2] == pytest.approx(0.05 * np.sqrt(2 / np.pi), rel=0.02)


def test_what_remains_is_what_runs_are_off_by() -> None:
    assert design.remaining(np.zeros(0), 0.05, 4.0) == pytest.approx(0.05)
    assert design.remaining(np.full(4, 0.15), 0.05, 4.0) == pytest.approx(
        np.sqrt((0.01 + 0.09) / 8)
    )
