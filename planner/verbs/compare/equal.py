"""As many GPUs as cost, or draw, the same: the count near the equal one that has a layout, and how
far it is from equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.inputs.cluster import node_size, unit_cost
from planner.specs.base import PlanError
from planner.specs.cluster import MAX_GPUS
from planner.specs.document import changed
from planner.specs.documents.compare import EqualCount
from planner.specs.options import Options
from planner.verbs.counts import around, layout_counts, nearer
from planner.verbs.requests import Point, answer

UNITS = {"cost": "USD an hour", "power": "W of GPUs"}
# money or power within this share counts as equal: a choice, about what list prices are rounded to
EQUAL_FRAC = 0.02
# the very nearest count may divide badly (53 stages of 80 layers): of equal ones the nearest is
# taken that is at most so much slower per GPU than another; a choice
_SLOWER_FRAC = 0.1
_MOST_EQUAL = 6  # counts that are evaluated among the equal ones, the nearest: a choice
_TOGETHER = 4  # counts evaluated at a time beyond them
_MOST_TRIED = (
    40  # numbers of GPUs that are tried before the verdict is that none has a layout: a choice
)


@dataclass(frozen=True)
class Sized:
    """A request answered at its number of GPUs; equal: None if no such number exists."""

    point: Point
    equal: EqualCount | None


def sized(requests: Sequence[Options], basis: str, jobs: int) -> list[Sized]:
    """Every request on as many GPUs as cost, or draw, as much as the first request.

    what: `cost` or `power`. Raises PlanError if the first has no price on the chosen market;
    another request without one has no answer.
    """
    first = requests[0]
    each = unit_cost(first, basis)
    target = first.gpus * each
    here = _equal(first, float(first.gpus), each, target, basis)
    by_options: dict[Options, Sized] = {first: Sized(answer([first], jobs=jobs)[0], here)}
    for options in requests[1:]:
        if options not in by_options:
            by_options[options] = _sized(options, target, basis, jobs)
    return [by_options[options] for options in requests]


def _sized(options: Options, target: float, basis: str, jobs: int) -> Sized:
    try:
        each = unit_cost(options, basis)
    except PlanError as error:
        return Sized(Point(options, None, str(error)), None)
    exact, node = target / each, node_size(options)
    candidates = around(layout_counts(options, MAX_GPUS, every=True), exact, node)[:_MOST_TRIED]
    tried: list[Point] = []
    for some in _batches(candidates, exact):
        tried += answer([options.changed(gpus=n) for n in some], jobs=jobs)
        chosen = _best(tried, exact)
        if chosen is not None:
            equal = _equal(chosen.options, exact, each, target, basis)
            others = {point.options.gpus for point in tried if point.report is not None}
            near = nearer(exact, equal.gpus, node)
            return Sized(
                chosen,
                changed(
                    equal,
                    without_layout=[n for n in near if n not in others],
                    slower=[n for n in near if n in others],
                ),
            )
    reason = f"no layout on about {exact:,.1f} GPUs: {len(tried)} counts around it tried"
    return Sized(Point(options, None, reason), None)


def _batches(counts: Sequence[int], exact: float) -> Iterator[Sequence[int]]:
    """Counts that are evaluated together: those that are equal, then outwards a few at a time."""
    equal = [n for n in counts if _is_equal(n, exact)][:_MOST_EQUAL]
    rest = counts[len(equal) :]
    if equal:
        yield equal
    for start in range(0, len(rest), _TOGETHER):
        yield rest[start : start + _TOGETHER]


def _is_equal(gpus: int, exact: float) -> bool:
    return abs(gpus - exact) <= EQUAL_FRAC * exact


def _best(points: Sequence[Point], exact: float) -> Point | None:
    """The nearest of equal counts that is about as fast per GPU as any, those that fit before
    others; else the nearest with a layout. None: none has one. points: the nearest first."""
    answered = [point for point in points if point.report is not None]
    equal = [point for point in answered if _is_equal(point.options.gpus, exact)]
    some = [point for point in equal if point.fits] or equal
    fastest = max(map(_rate, some), default=0.0)
    fast = (point for point in some if _rate(point) >= (1 - _SLOWER_FRAC) * fastest)
    return next(fast, None) or next(iter(answered), None)


def _rate(point: Point) -> float:
    return point.report.throughput.tokens_per_s_per_gpu if point.report else 0.0


def _equal(options: Options, exact: float, each: float, target: float, basis: str) -> EqualCount:
    amount = options.gpus * each
    return EqualCount(
        exact_gpus=exact,
        gpus=options.gpus,
        unit=UNITS[basis],
        amount=amount,
        target=target,
        off_frac=amount / target - 1,
        without_layout=[],
        slower=[],
    )
