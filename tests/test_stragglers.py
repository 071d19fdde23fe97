"""Ranks that differ, by formula: the slowest of many, slow hosts, two kinds of GPUs, lengths of
documents."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import integrate, stats

from planner import api
from planner.formulas.overlap import straggler_factor
from planner.formulas.stragglers import (
    bucketed_moment,
    cut_moment,
    equal_split_s,
    expected_slowest,
    longer_frac,
    longest_moment,
    packed_attention_frac,
    packed_spread_frac,
    packed_window_frac,
    proportional_split_s,
    slow_job_frac,
)

SHARE = st.floats(0, 1)


def slowest(ranks: float, jitter: float = 1.0) -> float:
    return float(expected_slowest(ranks, 1.0, jitter))


@pytest.mark.parametrize(
    ("ranks", "value", "digits"),
    [
        (1, 0.0, 1e-12),
        (2, 1 / math.sqrt(math.pi), 1e-12),  # closed form
        (3, 1.5 / math.sqrt(math.pi), 1e-12),  # closed form
        (5, 2.3259289473 / 2, 1e-10),  # half the mean range d2(5): SAS/QC user's guide, function D2
        (10, 1.53875, 5e-6),  # tables of normal order statistics
        (100, 2.50759, 5e-6),
        (1000, 3.24144, 5e-6),
    ],
)
def test_known_maxima_of_normal_variables(ranks: float, value: float, digits: float) -> None:
    assert slowest(ranks) == pytest.approx(value, abs=digits)


@pytest.mark.parametrize("ranks", [7.0, 64.0, 4096.0, 1e6, 1e9])
def test_maximum_as_another_integration_gives_it(ranks: float) -> None:
    def density(z: float) -> float:
        return z * ranks * float(np.exp(stats.norm.logpdf(z) + (ranks - 1) * stats.norm.logcdf(z)))

    top = stats.norm.isf(1 / ranks)
    value, _ = integrate.quad(
        density, -9, 12, points=[top - 1, top, top + 1], limit=400, epsabs=1e-12, epsrel=1e-12
    )
    assert slowest(ranks) == pytest.approx(value, rel=1e-9)


@given(ranks=st.integers(2, 10**6), jitter=st.floats(1e-6, 0.5))
def test_maximum_lies_below_the_usual_bound_and_near_bloms_formula(
    ranks: int, jitter: float
) -> None:
    bound = float(straggler_factor(float(ranks), jitter)) - 1
    blom = jitter * float(stats.norm.ppf((ranks - 0.375) / (ranks + 0.25)))  # Blom 1958
    value = slowest(ranks, jitter)
    assert 0 < value < bound
    assert value == pytest.approx(blom, rel=0.05)
    assert value == pytest.approx(jitter * slowest(ranks), rel=1e-12)
    assert value < slowest(2 * ranks, jitter)


def test_slow_hosts_by_hand() -> None:
    # 64 hosts, each slow with chance 0.5 %: 1 - 0.995^64 = 27.4 % of jobs have a slow one and take
    # 10 % longer
    assert float(slow_job_frac(64.0, 0.005)) == pytest.approx(1 - 0.995**64)
    assert pytest.approx(0.2744, abs=1e-4) == 1 - 0.995**64
    assert float(expected_slowest(64.0, 8.0, 0.0, 0.005, 0.1)) == pytest.approx(
        0.1 * (1 - 0.995**64)
    )
    assert float(slow_job_frac(64.0, 1.0)) == 1.0
    assert float(slow_job_frac(64.0, 0.0)) == 0.0


@pytest.mark.parametrize(
    ("jitter", "slow", "by"),
    [(0.01, 0.02, 0.1), (0.05, 0.3, 0.1), (0.02, 0.01, 0.03), (0.004, 0.005, 0.5)],
)
def test_slow_hosts_and_jitter_as_drawn(jitter: float, slow: float, by: float) -> None:
    hosts, ranks, draws = 16, 4, 40_000
    random = np.random.default_rng(5)
    steps = jitter * random.standard_normal((draws, hosts, ranks)) + by * (
        random.random((draws, hosts, 1)) < slow
    )
    drawn = steps.max(axis=(1, 2))
    error = drawn.std() / math.sqrt(draws)
    assert float(expected_slowest(hosts, ranks, jitter, slow, by)) == pytest.approx(
        drawn.mean(), abs=4 * error
    )


@given(
    hosts=st.integers(1, 100_000),
    ranks=st.sampled_from([1, 4, 8]),
    jitter=st.floats(0, 0.3),
    slow=SHARE,
    by=st.floats(0, 5),
    more=st.floats(0, 1),
)
def test_slow_hosts_only_ever_cost(
    hosts: int, ranks: int, jitter: float, slow: float, by: float, more: float
) -> None:
    value = float(expected_slowest(hosts, ranks, jitter, slow, by))
    usual = float(expected_slowest(hosts, ranks, jitter))
    assert usual - 1e-9 <= value <= usual + by + 1e-9
    assert (
        value >= by * float(slow_job_frac(hosts, slow)) - 1e-9
    )  # Jensen: only the mean of the slow hosts
    assert float(expected_slowest(hosts, ranks, jitter, slow, by + more)) >= value - 1e-9
    assert (
        float(expected_slowest(hosts, ranks, jitter, slow + (1 - slow) * more, by)) >= value - 1e-9
    )
    assert float(expected_slowest(hosts + 1, ranks, jitter, slow, by)) >= value - 1e-9


def test_all_hosts_slow_is_everyone_slower() -> None:
    assert float(expected_slowest(8.0, 8.0, 0.01, 1.0, 0.1)) == pytest.approx(
        0.1 + slowest(64, 0.01), rel=1e-9
    )


def test_splits_by_hand() -> None:
    assert float(equal_split_s(5.0, 14.0)) == 14.0
    # 4 replicas, one of them half as fast, 7 micro-batches each: 28 in all; in 8 s the fast end 8
    # each, the slow one 4: 28
    assert float(proportional_split_s(7.0, 14.0, 4.0, 1.0, 7.0)) == pytest.approx(8.0)
    # equally fast: nothing to gain; a single kind: its own time
    assert float(proportional_split_s(7.0, 7.0, 4.0, 1.0, 7.0)) == pytest.approx(7.0)
    assert float(proportional_split_s(7.0, 14.0, 4.0, 0.0, 7.0)) == 7.0
    assert float(proportional_split_s(7.0, 14.0, 4.0, 4.0, 7.0)) == 14.0


@given(
    ours=st.floats(0.2, 1),
    other=st.floats(0.2, 1),
    replicas=st.integers(2, 40),
    part=SHARE,
    m=st.integers(1, 60),
)
def test_proportional_split_is_the_best_of_whole_micro_batches(
    ours: float, other: float, replicas: int, part: float, m: int
) -> None:
    second = min(max(round(part * replicas), 1), replicas - 1)
    first = replicas - second
    ends = sorted(
        [k * ours for k in range(1, 6 * m + 2)] + [k * other for k in range(1, 6 * m + 2)]
    )

    def done(t: float) -> float:
        return first * math.floor(t / ours + 1e-9) + second * math.floor(t / other + 1e-9)

    brute = next(t for t in ends if done(t) >= replicas * m)
    value = float(proportional_split_s(ours * m, other * m, replicas, second, m))
    assert value == pytest.approx(brute, rel=1e-6)
    ideal = replicas * m / (first / ours + second / other)
    assert ideal * (1 - 1e-9) <= value <= float(equal_split_s(ours * m, other * m)) * (1 + 1e-9)


@given(mean=st.floats(0.01, 3), sigma=st.floats(0, 2))
def test_moments_of_cut_lengths(mean: float, sigma: float) -> None:
    first, second, third, fourth = (float(cut_moment(mean, sigma, k)) for k in (1.0, 2.0, 3.0, 4.0))
    assert 0 < fourth <= third * (1 + 1e-9) <= second * (1 + 1e-9) ** 2 <= first * (1 + 1e-9) ** 3
    assert first <= min(mean, 1.0) * (1 + 1e-9)
    assert second >= first**2 * (1 - 1e-9)


def test_moments_and_the_longest_as_drawn() -> None:
    random = np.random.default_rng(3)
    mean, sigma = 0.2, 1.0
    lengths = np.minimum(random.lognormal(math.log(mean) - sigma**2 / 2, sigma, 2_000_000), 1.0)
    for order in (1.0, 2.0, 3.0, 4.0):
        assert float(cut_moment(mean, sigma, order)) == pytest.approx(
            (lengths**order).mean(), rel=5e-3
        )
    for documents in (1, 4, 64):
        longest = (
            lengths[: 2_000_000 // documents * documents].reshape(-1, documents).max(axis=1).mean()
        )
        assert float(longest_moment(mean, sigma, documents, 1.0)) == pytest.approx(
            longest, rel=1e-2
        )


@pytest.mark.parametrize("documents", [1, 8])
def test_sorted_micro_batches_as_drawn(documents: int) -> None:
    """Lists of 50 micro-batches, sorted, cut, each as long as its longest."""
    random = np.random.default_rng(5)
    mean, sigma = 0.2, 0.8
    drawn = random.lognormal(math.log(mean) - sigma**2 / 2, sigma, (2000, 50 * documents))
    lists = np.sort(np.minimum(drawn, 1.0), axis=1).reshape(2000, 50, documents)
    for order in (1.0, 2.0):
        number = float(bucketed_moment(mean, sigma, float(documents), order))
        assert number == pytest.approx((lists.max(axis=2) ** order).mean(), rel=2e-2)
    shuffled = random.permuted(drawn, axis=1).reshape(2000, 50, documents).max(axis=2)
    square = np.minimum(shuffled, 1.0) ** 2
    assert float(longest_moment(mean, sigma, documents, 2.0)) == pytest.approx(
        square.mean(), rel=1e-2
    )


@pytest.mark.parametrize(("mean", "sigma"), [(0.2, 1.0), (0.01, 0.5), (2.0, 0.3), (0.5, 0.0)])
def test_the_longest_of_one_is_the_mean_and_of_many_the_sequence(mean: float, sigma: float) -> None:
    assert float(longest_moment(mean, sigma, 1.0, 1.0)) == pytest.approx(
        float(cut_moment(mean, sigma, 1.0)), rel=1e-6
    )
    if sigma > 0:
        assert float(longest_moment(mean, sigma, 1e9, 1.0)) >= float(
            longest_moment(mean, sigma, 10.0, 1.0)
        )
        assert float(longest_moment(mean, sigma, 1e9, 1.0)) <= 1 + 1e-9


def test_documents_that_are_left_out_by_hand() -> None:
    """Median as long as the sequence, sigma 1: half are left out, mu = 0, and of the others E L^k =
    exp(k^2 / 2) Phi(-k) / (1 / 2) with Phi(-1) = 0.158655, Phi(-2) = 0.022750."""
    mean = math.exp(0.5)
    half = float(longer_frac(mean, 1.0))
    assert half == pytest.approx(0.5)
    for order, whole in ((1.0, 1.648721 * 0.158655), (2.0, 7.389056 * 0.022750)):
        for moment in (
            float(cut_moment(mean, 1.0, order, half)),
            float(longest_moment(mean, 1.0, 1.0, order, half)),
        ):
            assert moment == pytest.approx(whole / 0.5, rel=1e-4)


@pytest.mark.parametrize(("mean", "sigma"), [(0.2, 1.0), (1.0, 0.7), (2.0, 0.6)])
def test_documents_that_are_left_out_as_drawn(mean: float, sigma: float) -> None:
    random = np.random.default_rng(7)
    drawn = random.lognormal(math.log(mean) - sigma**2 / 2, sigma, 3_000_000)
    lengths = drawn[drawn <= 1]
    dropped = float(longer_frac(mean, sigma))
    assert dropped == pytest.approx(1 - len(lengths) / len(drawn), abs=2e-3)
    for order in (1.0, 2.0, 3.0, 4.0):
        moment = float(cut_moment(mean, sigma, order, dropped))
        assert moment == pytest.approx((lengths**order).mean(), rel=1e-2)
    window = 0.3  # of lengths over a window, documents are left out by the sequence all the same
    beside = float(cut_moment(mean / window, sigma, 2.0, dropped))
    assert beside == pytest.approx((np.minimum(lengths / window, 1) ** 2).mean(), rel=1e-2)
    for documents in (1, 4, 32):
        whole = lengths[: len(lengths) // documents * documents].reshape(-1, documents)
        longest = whole.max(axis=1)
        for order in (1.0, 2.0):
            number = float(longest_moment(mean, sigma, documents, order, dropped))
            assert number == pytest.approx((longest**order).mean(), rel=1e-2)
    lists = np.sort(lengths[:400_000].reshape(1000, 400), axis=1).reshape(1000, 50, 8)
    number = float(bucketed_moment(mean, sigma, 8.0, 1.0, dropped))
    assert number == pytest.approx(lists.max(axis=2).mean(), rel=2e-2)


@given(
    mean=st.floats(0.01, 3),
    sigma=st.floats(0, 2),
    documents=st.floats(1, 1e6),
    order=st.sampled_from([1.0, 2.0]),
)
def test_rows_without_the_longer_documents_are_no_longer(
    mean: float, sigma: float, documents: float, order: float
) -> None:
    dropped = float(longer_frac(mean, sigma))
    assume(dropped < 1 - 1e-6)
    for moment in (
        lambda share: cut_moment(mean, sigma, order, share),
        lambda share: longest_moment(mean, sigma, documents, order, share),
        lambda share: bucketed_moment(mean, sigma, documents, order, share),
    ):
        kept, cut = float(moment(dropped)), float(moment(0.0))
        assert 0 < kept <= cut * (1 + 1e-9)
        if dropped * documents < 1e-9:  # the sequence is far above the mean, or all are equal
            assert kept == pytest.approx(cut, rel=1e-6, abs=1e-7)


def test_packed_rows_by_hand() -> None:
    # documents of a quarter row: 4 x (1/4)^2 = 1/4 of the pairs, in every row the same
    moments = [float(cut_moment(0.25, 0.0, float(k))) for k in (1, 2, 3, 4)]
    assert float(packed_attention_frac(*moments[:2])) == pytest.approx(0.25)
    assert float(packed_spread_frac(*moments)) == 0.0
    assert float(packed_attention_frac(1.0, 1.0)) == 1.0


@pytest.mark.parametrize("window", [0.02, 0.1, 0.4])
@pytest.mark.parametrize(("mean", "sigma"), [(0.1, 1.0), (0.05, 0.5), (0.2, 1.5)])
def test_packed_rows_under_a_window_as_drawn(mean: float, sigma: float, window: float) -> None:
    random = np.random.default_rng(5)
    lengths = np.minimum(random.lognormal(math.log(mean) - sigma**2 / 2, sigma, 200_000), 1.0)
    pairs = np.where(lengths > window, window * lengths - window**2 / 2, lengths**2 / 2)
    drawn = pairs.sum() / lengths.sum() / (window - window**2 / 2)
    first, second = (float(cut_moment(mean / window, sigma, k)) for k in (1.0, 2.0))
    text = packed_window_frac(float(cut_moment(mean, sigma, 1.0)), first, second, window)
    assert float(text) == pytest.approx(drawn, rel=0.02)


def test_a_window_as_long_as_the_row_is_none() -> None:
    first, second = (float(cut_moment(0.2, 1.0, k)) for k in (1.0, 2.0))
    number = float(packed_window_frac(first, first, second, 1.0))
    assert number == pytest.approx(float(packed_attention_frac(first, second)))


def test_models_with_windows_are_packed() -> None:
    """Documents far shorter than the window have the attention of a model without one; long ones
    take the work that the window leaves them."""
    values = {"gpu": "h100", "gpus": 1, "lora": 8, "global_batch": 8, "seq_len": 8192, "advice": 0}
    for mean, within in ((64, 1e-3), (4000, None)):
        given = {**values, "length_mean": mean, "length_sigma": 0.5}
        windowed, plain = (
            api.estimate(api.read_options({"model": name, **given})).step.components["attention"]
            for name in ("mistral-7b", "mistral-7b-v0.3")
        )
        if within is None:
            assert windowed < 0.99 * plain
        else:
            assert windowed == pytest.approx(plain, rel=within)


@pytest.mark.parametrize(("mean", "sigma"), [(0.1, 1.0), (0.05, 0.5), (0.2, 1.5)])
def test_attention_of_packed_rows_as_drawn(mean: float, sigma: float) -> None:
    random = np.random.default_rng(11)
    rows, ranks = 200, 4000
    moments = [float(cut_moment(mean, sigma, float(k))) for k in (1, 2, 3, 4)]
    count = int(1.6 * rows / moments[0])
    work = np.empty(ranks)
    for i in range(ranks):
        lengths = np.minimum(random.lognormal(math.log(mean) - sigma**2 / 2, sigma, count), 1.0)
        taken = np.searchsorted(np.cumsum(lengths), rows)
        work[i] = (lengths[:taken] ** 2).sum() / rows
    assert work.mean() == pytest.approx(float(packed_attention_frac(*moments[:2])), rel=0.02)
    assert math.sqrt(rows) * work.std() / work.mean() == pytest.approx(
        float(packed_spread_frac(*moments)), rel=0.06
    )
