"""The critical batch: steps against tokens by hand and at limits, noise scale from two norms, laws,
learning rates, sources."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.formulas import critical_batch as formulas
from planner.formulas.scaling import communication_ratio, log_mean_s
from planner.specs.base import PlanError
from planner.specs.options.own import BatchOptions
from planner.verbs.batch import critical

BATCHES = st.floats(1e2, 1e10)
MANY = st.floats(1e3, 1e9)


@pytest.mark.parametrize(
    ("batch", "steps", "tokens"), [(1e6, 5000, 5e9), (4e6, 2000, 8e9), (16e6, 1250, 20e9)]
)
def test_steps_and_tokens_by_hand(batch: float, steps: float, tokens: float) -> None:
    """S_min 1,000 and a critical batch of 4 M: E_min 4 B; a quarter, all and four times the
    critical batch."""
    assert formulas.steps_to_target(1000.0, batch, 4e6) == pytest.approx(steps)
    assert formulas.tokens_to_target(4e9, batch, 4e6) == pytest.approx(tokens)


@given(least=MANY, batch=BATCHES, noise=BATCHES)
def test_steps_and_tokens_lie_on_the_hyperbola(least: float, batch: float, noise: float) -> None:
    steps, tokens = (
        formulas.steps_to_target(least, batch, noise),
        formulas.tokens_to_target(least * noise, batch, noise),
    )
    assert tokens == pytest.approx(steps * batch)  # every step takes a batch
    over = (
        formulas.steps_to_target(1.0, batch, noise) - 1,
        formulas.tokens_to_target(1.0, batch, noise) - 1,
    )
    if min(over) > 1e-6:
        assert over[0] * over[1] == pytest.approx(1, rel=1e-6)


@given(least=MANY, batch=BATCHES, times=st.floats(1.01, 100), noise=BATCHES)
def test_a_larger_batch_takes_fewer_steps_and_more_tokens(
    least: float, batch: float, times: float, noise: float
) -> None:
    assert formulas.steps_to_target(least, batch * times, noise) < formulas.steps_to_target(
        least, batch, noise
    )
    assert formulas.tokens_to_target(least, batch * times, noise) > formulas.tokens_to_target(
        least, batch, noise
    )


def test_limits_of_the_batch() -> None:
    assert formulas.tokens_to_target(1e12, 1e-9, 4e6) == pytest.approx(1e12)
    assert formulas.steps_to_target(1e5, 1e-9, 4e6) > 1e19
    assert formulas.steps_to_target(1e5, 1e18, 4e6) == pytest.approx(1e5)
    assert formulas.tokens_to_target(1e12, 1e18, 4e6) == pytest.approx(1e12 * 1e18 / 4e6)


def test_a_fifth_more_tokens_come_with_a_fifth_of_the_critical_batch() -> None:
    """The batch that Zhang et al. 2024 call critical, 20 % beyond proportion, is a fifth of the one
    here."""
    assert formulas.tokens_to_target(1.0, 0.2, 1.0) == pytest.approx(1.2)


def test_a_batch_is_its_parts() -> None:
    assert formulas.global_batch(2, 8, 64) == 1024


@given(
    squared=st.floats(1e-3, 1e3),
    variance=st.floats(1e-3, 1e3),
    small=st.integers(1, 100),
    times=st.integers(2, 1000),
)
def test_two_norms_give_gradient_and_variance_back(
    squared: float, variance: float, small: int, times: int
) -> None:
    """The expected squared norm of a batch's gradient is |G|^2 + tr(Sigma) / B."""
    sizes = (float(small), float(small * times))
    values = (sizes[0], squared + variance / sizes[0], sizes[1], squared + variance / sizes[1])
    scale = squared + variance
    assert formulas.gradient_squared(*values) == pytest.approx(squared, rel=1e-6, abs=1e-9 * scale)
    assert formulas.gradient_variance(*values) == pytest.approx(
        variance, rel=1e-6, abs=1e-6 * scale
    )


def test_noise_scale_of_drawn_gradients() -> None:
    """Gradients drawn with |G|^2 = 4 and tr(Sigma) = 100 in 50 dimensions: noise scale 25, within
    the error of the mean."""
    rng = np.random.default_rng(7)
    exact = np.zeros(50)
    exact[0] = 2.0
    small, big, draws = 2, 256, 4000

    def squared(size: int) -> float:
        noise = rng.normal(
            0.0, math.sqrt(2.0 / size), (draws, 50)
        )  # the mean of `size` examples of variance 2 in each dimension
        return float(((exact + noise) ** 2).sum(axis=1).mean())

    pairs = [f"{size}:{math.sqrt(squared(size))}" for size in (small, big)]
    assert critical.noise_of(pairs) == pytest.approx(25, rel=0.03)


def test_order_of_the_batches_does_not_matter() -> None:
    assert critical.noise_of(["512:2.048", "8:4.062"]) == critical.noise_of(
        ["8:4.062", "512:2.048"]
    )


def test_noise_scale_by_hand() -> None:
    """|G|^2 = (512 x 4.2 - 8 x 16.5) / 504, tr(Sigma) = 12.3 / (1/8 - 1/512)."""
    squared, variance = (512 * 4.2 - 8 * 16.5) / 504, 12.3 / (1 / 8 - 1 / 512)
    assert critical.noise_of([f"8:{math.sqrt(16.5)}", f"512:{math.sqrt(4.2)}"]) == pytest.approx(
        variance / squared
    )


def test_laws_by_hand() -> None:
    assert formulas.critical_batch_at_loss(1.0) == 2e8
    assert formulas.critical_batch_at_loss(2.0) == pytest.approx(2e8 / 27.13, rel=1e-3)  # 2^4.762
    assert formulas.critical_batch_at_loss(2.0 * 0.87) / formulas.critical_batch_at_loss(
        2.0
    ) == pytest.approx(2, rel=0.05)
    assert formulas.expected_loss(7e10, 1.4e12) == pytest.approx(
        1.69 + 0.0835 + 0.1632, abs=2e-4
    )  # Chinchilla
    assert formulas.expected_loss(1e30, 1e30) == pytest.approx(1.69, abs=1e-5)


@given(rate=st.floats(1e-6, 1), reference=BATCHES, times=st.floats(1, 1e4), noise=BATCHES)
def test_rates_keep_their_order(rate: float, reference: float, times: float, noise: float) -> None:
    batch = reference * times
    linear, root = (
        formulas.linear_rate(rate, batch, reference),
        formulas.root_rate(rate, batch, reference),
    )
    saturating = formulas.saturating_rate(rate, batch, reference, noise)
    assert linear == pytest.approx(rate * times)
    assert root == pytest.approx(rate * math.sqrt(times))
    assert rate * (1 - 1e-9) <= saturating <= linear * (1 + 1e-9)
    assert saturating <= rate * (1 + noise / reference) * (1 + 1e-9)  # eps_max


def test_limits_of_the_saturating_rate() -> None:
    assert formulas.saturating_rate(3e-4, 8e6, 4e6, 1e18) == pytest.approx(6e-4)
    assert formulas.saturating_rate(3e-4, 8e6, 4e6, 1e-9) == pytest.approx(3e-4)
    assert formulas.saturating_rate(1.0, 1e6, 4e6, 4e6) == pytest.approx(
        2 / 5
    )  # half of eps_max at B0, a fifth at a quarter of it


PARTS = st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=1, max_size=6)


@given(PARTS)
def test_parts_over_the_logarithmic_mean_add_up_to_the_logarithm(
    parts: list[tuple[float, float]],
) -> None:
    before, after = (sum(column) for column in zip(*parts, strict=True))
    mean = float(log_mean_s(after, before))
    assert min(before, after) * (1 - 1e-9) <= mean <= max(before, after) * (1 + 1e-9)
    assert sum((b - a) / mean for a, b in parts) == pytest.approx(
        math.log(after / before), abs=1e-9
    )


def test_hidden_communication_counts() -> None:
    assert communication_ratio(1.0, 3.0, 8.0) == 0.5


def read(**changes: Any) -> critical.Critical:
    given_: dict[str, Any] = {"seq_len": 4096, "parameters": 7e9, "tokens": 2e12}
    return critical.read(BatchOptions(**changes), **given_)


def test_where_a_critical_batch_comes_from() -> None:
    assert read(critical_batch="4M").tokens == 4e6
    assert read(target_loss=2.0).tokens == formulas.critical_batch_at_loss(2.0)
    measured = read(gradient_norm=["8:4.062", "512:2.048"])
    assert measured.measured
    assert measured.tokens == pytest.approx(4096 * critical.noise_of(["8:4.062", "512:2.048"]))
    expected = read()
    assert expected.loss_nats == formulas.expected_loss(7e9, 2e12)
    assert expected.tokens == formulas.critical_batch_at_loss(expected.loss_nats)
    assert not expected.measured


def test_a_known_run_fixes_the_least_of_both() -> None:
    """2,000 steps of the critical batch: half of its steps and half of its tokens are the least."""
    target = critical.Target(read(critical_batch="4M"), 4e6, 8e9)
    assert target.least_tokens == pytest.approx(4e9)
    assert target.least_steps == pytest.approx(1000)
    assert target.steps(4e6) == pytest.approx(2000)
    assert target.tokens_with(16e6) == pytest.approx(20e9)
    assert target.scaled(4.0).tokens_with(4e6) == pytest.approx(
        8e9
    )  # the known run stays as it is known
    assert target.scaled(4.0).tokens_with(16e6) < target.tokens_with(16e6)


@pytest.mark.parametrize(
    ("changes", "option", "text"),
    [
        ({"critical_batch": "4M", "target_loss": 2.0}, "--target-loss", "--critical-batch"),
        (
            {"target_loss": 2.0, "gradient_norm": ["8:1", "16:1"]},
            "--gradient-norm",
            "--target-loss",
        ),
        ({"critical_batch": "many"}, "--critical-batch", "expected a count"),
        ({"critical_batch": "0"}, "--critical-batch", "must be between"),
        ({"critical_batch": "4 GB"}, "--critical-batch", "expected a count"),
        ({"target_loss": 0.1}, "--target-loss", "between 0.5 and 20"),
        ({"target_loss": float("nan")}, "--target-loss", "finite"),
        ({"gradient_norm": ["8:1.5"]}, "--gradient-norm", "two batches"),
        ({"gradient_norm": ["8:1.5", "8:1.2"]}, "--gradient-norm", "differ"),
        ({"gradient_norm": ["8", "16:1"]}, "--gradient-norm", "BATCH:NORM"),
        ({"gradient_norm": ["8:0", "16:1"]}, "--gradient-norm", "not positive"),
        ({"gradient_norm": ["8:1", "16:2"]}, "--gradient-norm", "smaller norm"),
        ({"gradient_norm": ["8:4", "16:2"]}, "--gradient-norm", "only noise"),
    ],
)
def test_wrong_sources_are_refused(changes: dict[str, Any], option: str, text: str) -> None:
    with pytest.raises(PlanError, match=text) as error:
        read(**changes)
    assert error.value.field == option
