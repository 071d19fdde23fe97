"""Divisors of a number."""

from __future__ import annotations

import math
from functools import cache


@cache
def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending, in square-root time."""
    small = [i for i in range(1, math.isqrt(number) + 1) if number % i == 0]
    return tuple(sorted({*small, *(number // i for i in small)}))
