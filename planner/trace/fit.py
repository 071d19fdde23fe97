"""Exact polynomials through counts at several batch sizes and lengths."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction

from planner.specs.polynomial import Polynomial

Size = tuple[int, int]  # samples, tokens; tokens 1 where the model has no length
Powers = tuple[int, int]


class NotPolynomial(ValueError):
    """Counts that no polynomial of the given powers goes through."""


def powers_of(lengths: int, batches: int) -> list[Powers]:
    """Powers that are determined by counts at this number of lengths and batch sizes."""
    return [(i, j) for i in range(batches) for j in range(lengths)]


@functools.lru_cache(maxsize=64)
def _inverse(
    sizes: tuple[Size, ...], powers: tuple[Powers, ...]
) -> tuple[tuple[Fraction, ...], ...]:
    """Rows that give every coefficient from values at the sizes."""
    count = len(powers)
    rows = [
        [Fraction(b) ** i * Fraction(s) ** j for i, j in powers]
        + [Fraction(int(at == row)) for at in range(count)]
        for row, (b, s) in enumerate(sizes[:count])
    ]
    for column in range(count):
        pivot = next(row for row in range(column, count) if rows[row][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        scale = rows[column][column]
        rows[column] = [x / scale for x in rows[column]]
        for row in range(count):
            if row != column and rows[row][column]:
                factor = rows[row][column]
                pairs = zip(rows[row], rows[column], strict=True)
                rows[row] = [x - factor * y for x, y in pairs]
    return tuple(tuple(row[count:]) for row in rows)


@functools.lru_cache(maxsize=100_000)
def fitted(
    values: tuple[int, ...], sizes: tuple[Size, ...], powers: tuple[Powers, ...]
) -> Polynomial:
    """The polynomial through values at sizes. Raises NotPolynomial where it misses one of those
    beyond the first len(powers)."""
    if not any(values):
        return Polynomial(())
    inverse = _inverse(sizes, powers)
    coefficients = {
        power: sum((x * v for x, v in zip(row, values, strict=False) if x), start=Fraction(0))
        for power, row in zip(powers, inverse, strict=True)
    }
    for (b, s), value in zip(sizes[len(powers) :], values[len(powers) :], strict=True):
        at = sum(
            (c * Fraction(b) ** i * Fraction(s) ** j for (i, j), c in coefficients.items()),
            start=Fraction(0),
        )
        if at != value:
            raise NotPolynomial(f"{value:,} at batch {b}, length {s}, where {float(at):,.1f} fits")
    return Polynomial.of(coefficients)


def total(polynomials: Sequence[Polynomial]) -> Polynomial:
    """Their sum."""
    out: dict[Powers, Fraction] = {}
    for polynomial in polynomials:
        for i, j, value in polynomial.terms:
            out[i, j] = out.get((i, j), Fraction(0)) + value
    return Polynomial.of(out)


def times(polynomial: Polynomial, factor: Fraction) -> Polynomial:
    """Its multiple."""
    return Polynomial(tuple((i, j, value * factor) for i, j, value in polynomial.terms if factor))


def product(*factors: Polynomial) -> Polynomial:
    """Their product."""
    out: dict[Powers, Fraction] = {(0, 0): Fraction(1)}
    for factor in factors:
        longer: dict[Powers, Fraction] = {}
        for (i, j), value in out.items():
            for k, m, each in factor.terms:
                longer[i + k, j + m] = longer.get((i + k, j + m), Fraction(0)) + value * each
        out = longer
    return Polynomial.of(out)
