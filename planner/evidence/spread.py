"""A distribution of measured over expected: quantiles and probabilities in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

# degrees of freedom of Student's t: errors of suites have heavier tails than normal ones; a choice
# between 4 and 6, which hold alike
_FREEDOM = 5
COVERAGE = 0.80  # share of unseen runs that a band should hold
SIDE = (1 + COVERAGE) / 2
_STEPS = 60  # halvings of an interval until a quantile is exact to rounding
_FAR = 1e3  # scales within which every requested quantile lies


def _below(t: float) -> float:
    """Probability that Student's t with five degrees of freedom is below t (Johnson, Kotz &
    Balakrishnan 1995, chapter 28: closed form for odd degrees)."""
    x = t / math.sqrt(_FREEDOM)
    inside = 1 / (1 + x * x)
    return 0.5 + (math.atan(x) + x * inside * (1 + 2 / 3 * inside)) / math.pi


@cache
def student(p: float) -> float:
    """Quantile of the same distribution."""
    low, high = -_FAR, _FAR
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle) < p else (low, middle)
    return (low + high) / 2


@dataclass(frozen=True)
class Spread:
    """Measured over expected. Its median is 1; its logarithm is Student's t, `below` wide towards
    faster and `above` towards slower."""

    below: float
    above: float

    @classmethod
    def of_ends(cls, low: float, high: float) -> Spread:
        """The distribution that has this band."""
        return cls(-math.log(low) / student(SIDE), math.log(high) / student(SIDE))

    def quantile(self, p: float) -> float:
        """The factor that measured over expected stays below with probability p (0 < p < 1)."""
        t = student(p)
        return math.exp((self.below if t < 0 else self.above) * t)

    def probability(self, factor: float) -> float:
        """Probability that measured over expected is at most this factor."""
        if factor <= 0:
            return 0.0
        scale = self.below if factor < 1 else self.above
        if scale == 0:
            return 0.0 if factor < 1 else 1.0
        return _below(math.log(factor) / scale)

    def ends(self) -> tuple[float, float]:
        """Both ends of the band."""
        return self.quantile(1 - SIDE), self.quantile(SIDE)

    def beside(self, scale: float) -> Spread:
        """The product with an independent factor whose logarithm is so wide."""
        return Spread(math.hypot(self.below, scale), math.hypot(self.above, scale))
