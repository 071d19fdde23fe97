"""How likely a run stays within its limits, by the distribution of its wall time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from planner.evidence.spread import Spread as Around
from planner.specs.base import PlanError
from planner.specs.documents.recommend import ClusterRow
from planner.specs.options import flag
from planner.specs.options.recommend import LIKELY, UNLIKELY, VERY_LIKELY, Limits

DAY_S = 86400.0


def checked(limits: Limits, tokens: object) -> Limits:
    """The limits again. Raises PlanError for one that makes no sense without another option."""
    for name in ("days", "budget"):
        if name in limits.given() and tokens is None:
            raise PlanError(
                "--tokens",
                None,
                f"is needed for {flag(name)}: the length of the run, such as --tokens 2T",
            )
    if limits.sure and limits.days is None and limits.budget is None:
        raise PlanError(
            "--sure",
            None,
            "holds --days and --budget at the slow end of the band; give one of them",
        )
    return limits


def in_reach(rows: Iterable[ClusterRow], limits: Limits) -> bool:
    """Whether fewer GPUs than some of these could be within the limits: only memory and days ask
    for more."""
    days = math.inf if limits.days is None else limits.days
    return any(row.fits and (row.days is None or row.days <= days) for row in rows)


@dataclass(frozen=True)
class Spread:
    """Days or dollars of a run, with the ends of the 80 % band."""

    expected: float
    low: float
    high: float

    def chance(self, limit: float) -> float:
        """Probability that it is at most this limit."""
        around = Around.of_ends(self.low / self.expected, self.high / self.expected)
        return around.probability(limit / self.expected)

    def text(self, unit: str, decimals: int) -> str:
        expected, low, high = (
            f"{value:,.{decimals}f}" for value in (self.expected, self.low, self.high)
        )
        return f"{expected} {unit} ({low} .. {high})"


def chance(days: Spread | None, dollars: Spread | None, limits: Limits) -> float | None:
    """Probability that the run ends within days and dollars, which the same wall time decides.
    None: not limited, or not known."""
    limited = [
        (spread, limit)
        for spread, limit in ((days, limits.days), (dollars, limits.budget))
        if limit is not None
    ]
    if not limited or any(spread is None for spread, _ in limited):
        return None
    return min(spread.chance(limit) for spread, limit in limited if spread is not None)


def verdict(
    days: Spread | None, dollars: Spread | None, limits: Limits, unpriced: str | None
) -> tuple[str | None, str | None]:
    """How likely the run ends within days and dollars, in words; and what it takes where it may be
    beyond them. None, None: neither is limited. unpriced: why no price is known."""
    limited = [
        (spread, limit, unit, decimals)
        for spread, limit, unit, decimals in (
            (days, limits.days, "days", 1),
            (dollars, limits.budget, "USD", 0),
        )
        if limit is not None
    ]
    known = [
        (spread, limit, spread.text(unit, decimals))
        for spread, limit, unit, decimals in limited
        if spread is not None
    ]
    if not limited:
        return None, None
    if len(known) < len(limited):
        return "unknown", f"{unpriced}, so no budget can be checked; give --price or --market"
    why = "; ".join(text for spread, limit, text in known if spread.high > limit) or None
    return _words(min(spread.chance(limit) for spread, limit, _ in known)), why


def _words(likely: float) -> str:
    if likely >= LIKELY:
        return "very likely" if likely >= VERY_LIKELY else "likely"
    return "unlikely" if likely >= UNLIKELY else "no"
