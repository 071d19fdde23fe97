"""Stragglers and heterogeneity: the expected slowest of many, slow hosts, two kinds of GPUs,
documents of different lengths."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

import numpy as np

from planner.ledger import Array, formula

_REACH = 10.0  # standard deviations beyond which a normal tail is nothing: 1e-23
_PANELS, _POINTS = (
    40,
    10,
)  # of the quadrature: far below 1e-9 for up to 1e9 ranks (tests/test_stragglers.py)
_SMALL = 1e-12
_BUCKET = 50  # micro-batches whose documents are sorted together

_quantile = np.vectorize(NormalDist().inv_cdf, otypes=[float])
_erfc = np.frompyfunc(math.erfc, 1, 1)


def _tail(z: Array) -> Array:
    """Chance that a standard normal variable is larger than z."""
    return 0.5 * np.asarray(_erfc(z / math.sqrt(2.0)), dtype=float)


@functools.cache
def _nodes() -> tuple[Array, Array]:
    """Points and weights of Gauss-Legendre panels that share the interval from 0 to 1."""
    x, w = np.polynomial.legendre.leggauss(_POINTS)
    starts = np.arange(_PANELS)[:, None] / _PANELS
    return (starts + (x + 1) / 2 / _PANELS).reshape(-1), np.tile(w / 2 / _PANELS, _PANELS)


@formula(unit="1", equation="1 - (1 - p)^H", source="hosts are slow independently of one another")
def slow_job_frac(hosts: Array, slow_frac: Array) -> Array:
    """Chance that a job on H hosts has at least one slow host."""
    kept = np.log1p(-np.minimum(slow_frac, 1 - _SMALL))
    return np.where(np.asarray(slow_frac) >= 1, 1.0, -np.expm1(hosts * kept))


def _late(tail: Array, hosts: Array, ranks: Array, slow: Array, slow_tail: Array) -> Array:
    """Chance that the slowest rank is later than z, from the tails of a normal and of a slow host's
    rank at z."""
    with np.errstate(divide="ignore"):
        usual = -np.expm1(ranks * np.log1p(-tail))  # a host of which one rank is later
        slowed = -np.expm1(ranks * np.log1p(-slow_tail))
        return -np.expm1(hosts * np.log1p(-((1 - slow) * usual + slow * slowed)))


@formula(
    unit="1",
    equation=(
        "E max = int_0^inf 1 - F dx - int_-inf^0 F dx, F = ((1-p) Phi(x/sigma)^g + p"
        " Phi((x-d)/sigma)^g)^H"
    ),
    source=(
        "maximum of independent variables; order statistics: David & Nagaraja 2003. Slow hosts as a"
        " mixture: own derivation"
    ),
)
def expected_slowest(
    hosts: Array,
    ranks_per_host: Array,
    jitter_frac: Array,
    slow_frac: Array = 0.0,
    slow_by_frac: Array = 0.0,
) -> Array:
    """How much longer than the mean usual rank the slowest of H hosts of g ranks takes, as a share.

    Steps of ranks are normal with jitter sigma; a host is slow with chance p, all its ranks by d.
    Zero for one usual rank.
    """
    hosts, ranks, p, d = (
        np.asarray(x, dtype=float)[..., None]
        for x in (hosts, ranks_per_host, slow_frac, slow_by_frac)
    )
    sigma = np.asarray(jitter_frac, dtype=float)[..., None]
    jitters = sigma > _SMALL
    shift = np.where(jitters, d / np.where(jitters, sigma, 1.0), 0.0)
    x, w = _nodes()
    ahead = _REACH * (x - 1)  # below the mean of usual ranks
    behind = _REACH * x
    low = _late(_tail(ahead), hosts, ranks, p, _tail(ahead - shift))
    high = _late(_tail(behind), hosts, ranks, p, _tail(behind - shift))
    # slow ranks far away are a second peak; between the two, only whether there is a slow host
    # counts
    start, end = np.maximum(_REACH, shift - _REACH), np.maximum(_REACH, shift + _REACH)
    far = start + (end - start) * x
    beyond = _late(_tail(far), hosts, ranks, p, _tail(far - shift))
    some = slow_job_frac(hosts, p)
    between = (start - _REACH) * some
    peaks = (w * (_REACH * (high - (1 - low)) + (end - start) * beyond)).sum(axis=-1)
    return np.where(jitters[..., 0], sigma[..., 0] * (peaks + between[..., 0]), (d * some)[..., 0])


@formula(
    unit="s",
    equation="max(T_1, T_2)",
    source="synchronous steps: with equal batches the slower kind sets the pace",
)
def equal_split_s(own_s: Array, other_s: Array) -> Array:
    """Computing time of a step when GPUs of two kinds get the same batch."""
    return np.maximum(own_s, other_s)


@formula(
    unit="s",
    equation="least T with R_1 floor(T m / T_1) + R_2 floor(T m / T_2) >= (R_1 + R_2) m",
    source=(
        "whole micro-batches, each to the kind that ends it first; own derivation. In the limit of"
        " many: (R_1 + R_2) / (R_1/T_1 + R_2/T_2)"
    ),
)
def proportional_split_s(
    own_s: Array, other_s: Array, replicas: Array, other_replicas: Array, microbatches: Array
) -> Array:
    """Computing time of a step when replicas of two kinds of GPUs share its micro-batches in
    proportion to their speed.

    own_s, other_s: of a step with an equal split, `microbatches` on every replica; replicas: all,
    other_replicas among them.
    """
    usual, m = replicas - other_replicas, microbatches
    first, second = own_s / m, other_s / m  # of one micro-batch
    ideal = replicas * m / (usual / first + other_replicas / second)
    best = np.maximum(
        np.ceil(ideal / first - _SMALL) * first, np.ceil(ideal / second - _SMALL) * second
    )  # always enough
    for each in (
        first,
        second,
    ):  # the end is a multiple of one of both; a few multiples after the ideal suffice
        for more in range(8):
            end = np.ceil(ideal / each - _SMALL) * each + more * each
            done = usual * np.floor(end / first + 1e-9) + other_replicas * np.floor(
                end / second + 1e-9
            )
            best = np.where((done >= replicas * m - 1e-6) & (end < best), end, best)
    return np.where(other_replicas > 0, np.where(usual > 0, best, other_s), own_s)


@formula(
    unit="1",
    equation="P(L > s) = Phi(mu/sigma), mu = ln(mean/s) - sigma^2/2",
    source="tail of a log-normal distribution",
)
def longer_frac(mean_frac: Array, sigma: Array) -> Array:
    """Share of documents that are longer than the sequence; mean_frac: mean over its length."""
    spread = np.maximum(sigma, 1e-9)
    beyond = _tail((spread**2 / 2 - np.log(mean_frac)) / spread)
    return np.where(np.asarray(sigma) > 0, beyond, np.where(np.asarray(mean_frac) > 1, 1.0, 0.0))


@formula(
    unit="1",
    equation=(
        "(E min(L/s, 1)^k - p) / (1 - p), E min(L/s, 1)^k = exp(k mu + k^2 sigma^2/2) Phi(-mu/sigma"
        " - k sigma) + Phi(mu/sigma), mu = ln(mean/s) - sigma^2/2"
    ),
    source=(
        "partial moments of a log-normal distribution, closed form; without the share p that is"
        " longer than a sequence: of the distribution truncated there"
    ),
)
def cut_moment(mean_frac: Array, sigma: Array, order: Array, dropped_frac: Array = 0.0) -> Array:
    """Moment of document length over sequence length, longer documents truncated; mean_frac: mean
    before truncation. dropped_frac: share of documents that is left out as longer than a sequence,
    which may be longer than this limit, below one."""
    spread = np.maximum(sigma, 1e-9)
    mu = np.log(mean_frac) - spread**2 / 2
    whole = np.exp(order * mu + order**2 * spread**2 / 2) * _tail(mu / spread + order * spread)
    cut = np.where(
        np.asarray(sigma) > 0, whole + _tail(-mu / spread), np.minimum(mean_frac, 1.0) ** order
    )
    return (cut - dropped_frac) / (1 - dropped_frac)


@formula(
    unit="1",
    equation=(
        "E max_b min(L/s, 1)^k = int_0^1 k x^(k-1) (1 - (max(F(x) - q, 0) / (1 - p - q))^b) dx"
    ),
    source="maximum of b independent log-normal lengths; David & Nagaraja 2003",
)
def longest_moment(
    mean_frac: Array,
    sigma: Array,
    documents: Array,
    order: Array,
    dropped_frac: Array = 0.0,
    short_frac: Array = 0.0,
) -> Array:
    """Moment of the longest of b document lengths over the sequence length. dropped_frac, p: share
    of documents that is left out as longer than the sequence; short_frac, q: as too short; together
    below one."""
    count = np.asarray(documents, dtype=float)[..., None]
    spread = np.maximum(np.asarray(sigma, dtype=float), 1e-9)[..., None]
    mu = np.log(np.asarray(mean_frac, dtype=float))[..., None] - spread**2 / 2
    first, last = np.minimum(mu - _REACH * spread, 0.0), np.minimum(mu + _REACH * spread, 0.0)
    x, w = _nodes()
    y = first + (last - first) * x  # logarithm of the length
    short = np.asarray(short_frac, dtype=float)[..., None]
    left = np.log1p(-np.asarray(dropped_frac, dtype=float)[..., None] - short)
    beyond = np.minimum(_tail((y - mu) / spread) + short, 1.0)
    with np.errstate(divide="ignore"):
        longer = -np.expm1(count * (np.log1p(-beyond) - left))
    inside = order * (w * (last - first) * longer * np.exp(order * y)).sum(axis=-1)
    return np.exp(order * first)[..., 0] + inside


@formula(
    unit="1",
    equation=(
        "(sum_{i<K} (Q(p_i - d_i)^k + Q(p_i + d_i)^k) / 2 + E max_{K b} min(L/s, 1)^k) / K, Q ="
        " min(exp(mu + sigma z(q + (1 - p - q) .)), 1), p_i = i b / (K b + 1), d_i^2 = p_i (1 -"
        " p_i) / (K b + 2)"
    ),
    source=(
        "the longest of every b of K b sorted documents, K = 50: LengthGroupedSampler of"
        " transformers (trainer_pt_utils.py, get_length_grouped_indices); order statistics from"
        " mean and deviation of their quantiles (David & Nagaraja 2003), against draws in the tests"
    ),
)
def bucketed_moment(
    mean_frac: Array,
    sigma: Array,
    documents: Array,
    order: Array,
    dropped_frac: Array = 0.0,
    short_frac: Array = 0.0,
) -> Array:
    """Moment of the longest document if micro-batches are cut from sorted documents."""
    mu, count = np.log(mean_frac) - sigma**2 / 2, np.asarray(documents, dtype=float)[..., None]
    p = np.arange(1.0, _BUCKET) * count / (_BUCKET * count + 1)
    spread = np.sqrt(p * (1 - p) / (_BUCKET * count + 2))
    short = np.asarray(short_frac, dtype=float)[..., None]
    left = 1 - np.asarray(dropped_frac, dtype=float)[..., None] - short
    at = (
        _quantile(np.clip(short + left * quantile, _SMALL, 1 - _SMALL))
        for quantile in (p - spread, p + spread)
    )
    ends = sum(np.minimum(np.exp(mu + sigma * z), 1.0) ** order for z in at) / 2
    longest = longest_moment(mean_frac, sigma, _BUCKET * documents, order, dropped_frac, short_frac)
    return (ends.sum(axis=-1) + longest) / _BUCKET


@formula(
    unit="1",
    equation="sigma = z - sqrt(z^2 - 2 ln(max / mean)), z the normal quantile of 1 - 1 / (N + 1)",
    source="max = exp(mu + z sigma), mean = exp(mu + sigma^2 / 2) of a log-normal, solved",
)
def sigma_of_longest(longest_over_mean: Array, quantile: Array) -> Array:
    """Sigma of the log-normal lengths whose longest is this many times their mean."""
    return quantile - np.sqrt(np.maximum(quantile**2 - 2 * np.log(longest_over_mean), 0.0))


@formula(
    unit="1",
    equation="E L^2 / (s E L)",
    source="own count: a packed row attends sum L_i^2 of the s^2 pairs, sum L_i = s",
)
def packed_attention_frac(mean: Array, mean_square: Array) -> Array:
    """Share of a full row's attention that is left where documents packed into it do not see each
    other."""
    return mean_square / mean


@formula(
    unit="1",
    equation=(
        "(E min(L, w)^2 / 2 + w (E L - E min(L, w))) / E L / (w - w^2 / 2), lengths and window over"
        " s"
    ),
    source="own count: a document of L tokens attends L^2/2 pairs, or w L - w^2/2 where L > w",
)
def packed_window_frac(
    mean: Array, mean_in_window: Array, square_in_window: Array, window: Array
) -> Array:
    """Fraction of attention left by packing for a layer with a sliding window. mean_in_window,
    square_in_window: moments of the length of documents cut to the window, over the window."""
    pairs = window**2 * square_in_window / 2 + window * (mean - window * mean_in_window)
    return pairs / mean / (window - window**2 / 2)


@formula(
    unit="1",
    equation="sqrt(E L / s E (L^2 - r L)^2) / E L^2, r = E L^2 / E L, lengths over s",
    source=(
        "central limit theorem of renewal-reward processes: documents until a row is full; against"
        " draws in the tests"
    ),
)
def packed_spread_frac(mean: Array, square: Array, cube: Array, fourth: Array) -> Array:
    """Standard deviation of the attention work of a packed row over its mean, from moments of L/s;
    for the mean of many rows."""
    ratio = square / mean
    variance = fourth - 2 * ratio * cube + ratio**2 * square
    return np.sqrt(mean * np.maximum(variance, 0.0)) / square


@formula(
    unit="B",
    equation="(2 C + 1) e",
    source="PyTorch SyncBatchNorm, torch/nn/modules/_functions.py: mean, 1/std, count",
)
def batch_norm_forward_bytes(channels: Array, element_bytes: Array) -> Array:
    """Bytes that a rank gives to the all-gather of one layer's forward pass."""
    return (2 * channels + 1) * element_bytes


@formula(
    unit="B",
    equation="2 C e",
    source="PyTorch SyncBatchNorm, torch/nn/modules/_functions.py: sum_dy and sum_dy_xmu",
)
def batch_norm_backward_bytes(channels: Array, element_bytes: Array) -> Array:
    """Bytes that one layer's backward pass reduces over all ranks."""
    return 2 * channels * element_bytes
