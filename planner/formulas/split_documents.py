"""Lengths of the rows that documents make whose rest beyond a sequence goes on in further rows."""

from __future__ import annotations

import functools
import math

import numpy as np

from planner.formulas.stragglers import longer_frac
from planner.ledger import Array, formula

_COUNTED = 32  # rows of a document that are counted one by one; longer ones by their integral
_LEAST = math.log(1e-6)  # logarithm of a row's length over the sequence below which none counts
_REACH = 10.0  # standard deviations beyond which a normal tail is nothing
_POINTS, _PANELS = 16, 24
_HALVINGS = 30  # of an interval of logarithms: a billionth of it is left
_BUCKET = 50  # as of documents that are not split
_SMALL = 1e-12


@functools.cache
def _nodes() -> tuple[Array, Array]:
    """Points and weights of Gauss-Legendre panels that share the interval from 0 to 1."""
    x, w = np.polynomial.legendre.leggauss(_POINTS)
    starts = np.arange(_PANELS)[:, None] / _PANELS
    return (starts + (x + 1) / 2 / _PANELS).reshape(-1), np.tile(w / 2 / _PANELS, _PANELS)


@formula(
    unit="1",
    equation=(
        "T(x) = sum_{n>=1} P(L > (n + x) s), beyond N = 32: int_{N+x}^inf P(L > t s) dt + P(L > (N"
        " + x) s) / 2, int_a^inf P(L > t s) dt = E L/s Phi(d) - a P(L > a s), d = (mu + sigma^2"
        " - ln a) / sigma"
    ),
    source="a document of L tokens has ceil(L/s) rows; Euler-Maclaurin for the far ones",
)
def further_rows(beyond_frac: Array, mean_frac: Array, sigma: Array) -> Array:
    """Rows of a document after its first that are longer than a share x of the sequence;
    mean_frac: mean length over the sequence's."""
    x = np.asarray(beyond_frac, dtype=float)
    near = sum(longer_frac(mean_frac / (n + x), sigma) for n in range(1, _COUNTED))
    far = _COUNTED + x
    tail = longer_frac(mean_frac / far, sigma)
    # lengths in proportion to their tokens are log-normal with a mean exp(sigma^2) times as large
    tokens = mean_frac * longer_frac(mean_frac * np.exp(np.square(sigma)) / far, sigma)
    return near + np.maximum(tokens - far * tail, 0.0) + tail / 2


@formula(
    unit="1",
    equation="1 - q + T(0)",
    source="E ceil(L/s): truncation_strategy split of ms-swift (template/base.py)",
)
def rows_per_document(mean_frac: Array, sigma: Array, short_frac: Array = 0.0) -> Array:
    """Rows that a document makes on average. short_frac: share that is left out as too short."""
    return 1 - short_frac + further_rows(0.0, mean_frac, sigma)


def _longer(x: Array, mean_frac: Array, sigma: Array, short_frac: Array) -> Array:
    """Share of rows that are longer than x of the sequence."""
    first = np.minimum(longer_frac(mean_frac / x, sigma), 1 - short_frac)
    every = rows_per_document(mean_frac, sigma, short_frac)
    return np.minimum((first + further_rows(x, mean_frac, sigma)) / every, 1.0)


def _columns(*values: Array) -> list[Array]:
    return [np.asarray(value, dtype=float)[..., None] for value in values]


@formula(
    unit="1",
    equation=(
        "int_0^w k x^(k-1) (1 - (1 - S(x))^b) dx / w^k, S(x) = (min(P(L > x s), 1 - q) + T(x)) / (1"
        " - q + T(0))"
    ),
    source="maximum of b independent rows; own derivation, against draws in the tests",
)
def longest_row_moment(
    mean_frac: Array,
    sigma: Array,
    rows: Array,
    order: Array,
    short_frac: Array = 0.0,
    within_frac: Array = 1.0,
) -> Array:
    """Moment of the longest of b rows over the sequence length, or cut to a share w of it over
    that."""
    mean, spread, count, short, window = _columns(mean_frac, sigma, rows, short_frac, within_frac)
    (power,) = _columns(order)
    last = np.log(window)
    first = np.minimum(np.log(mean) - _REACH * np.maximum(spread, 0.01), last + _LEAST)
    x, w = _nodes()
    y = first + (last - first) * x  # logarithm of the length
    with np.errstate(divide="ignore"):
        longer = -np.expm1(count * np.log1p(-_longer(np.exp(y), mean, spread, short)))
    inside = (power * w * (last - first) * longer * np.exp(power * (y - last))).sum(axis=-1)
    return np.exp(power * (first - last))[..., 0] + inside


@formula(
    unit="1",
    equation=(
        "(sum_{i<K} (Q(p_i - d_i)^k + Q(p_i + d_i)^k) / 2 + E max_{K b} x^k) / K, S(Q(u)) = 1 - u,"
        " p_i and d_i as of documents that are not split"
    ),
    source="as of documents that are not split (bucketed_moment); against draws in the tests",
)
def bucketed_row_moment(
    mean_frac: Array, sigma: Array, rows: Array, order: Array, short_frac: Array = 0.0
) -> Array:
    """Moment of the longest row if micro-batches are cut from sorted rows."""
    mean, spread, count, short = _columns(mean_frac, sigma, rows, short_frac)
    (power,) = _columns(order)
    p = np.arange(1.0, _BUCKET) * count / (_BUCKET * count + 1)
    off = np.sqrt(p * (1 - p) / (_BUCKET * count + 2))
    ends = sum(
        np.exp(power * _quantile(np.clip(u, _SMALL, 1 - _SMALL), mean, spread, short))
        for u in (p - off, p + off)
    )
    longest = longest_row_moment(mean_frac, sigma, _BUCKET * rows, order, short_frac)
    return (ends.sum(axis=-1) / 2 + longest) / _BUCKET


def _quantile(u: Array, mean_frac: Array, sigma: Array, short_frac: Array) -> Array:
    """Logarithm of the length that a share u of the rows does not exceed, by halving."""
    low = np.minimum(np.log(mean_frac) - _REACH * np.maximum(sigma, 0.01), _LEAST) + 0.0 * u
    high = 0.0 * low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = _longer(np.exp(middle), mean_frac, sigma, short_frac) > 1 - u
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high
