"""A distribution of measured over expected: quantiles and probabilities in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

# degrees of freedom of Student's t: errors of suites have heavier tails than normal ones; a choice
# between 4 and 6, which hold alike
_FREEDOM = 5
_STEPS = 60  # halvings of an interval until a quantile is exact to rounding
_FAR = 1e3  # scales within which every quantile asked for lies


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
    """Measured over expected: its logarithm is Student's t around `middle`, `scale` wide."""

    middle: float
    scale: float

    def quantile(self, p: float) -> float:
        """The factor that measured over expected stays below with probability p (0 < p < 1)."""
        return math.exp(self.middle + self.scale * student(p))

    def probability(self, factor: float) -> float:
        """Probability that measured over expected is at most this factor."""
        if factor <= 0:
            return 0.0
        return _below((math.log(factor) - self.middle) / self.scale)

    def beside(self, scale: float) -> Spread:
        """The product with an independent factor whose logarithm is so wide."""
        return Spread(self.middle, math.hypot(self.scale, scale))
