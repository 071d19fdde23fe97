"""The largest of a ladder of sizes that fits, for many requests at once: contexts, micro-batches,
models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.specs.model import ModelSpec
from planner.specs.options import Options
from planner.verbs.requests import Point, answer

_STEP = 512  # tokens: contexts are multiples of it
_OCTAVE = 8  # contexts per doubling: each is 9 % longer than the one before
# contexts and micro-batches that are tried, ascending
CONTEXTS = tuple(
    sorted({_STEP * max(1, round(2 ** (i / _OCTAVE))) for i in range(11 * _OCTAVE + 1)})
)
MICRO_BATCHES = tuple(2**i for i in range(9))
CHANCES = (0.5, 0.05)  # to fit, of sizes above the largest that surely does
_ABOVE = 3  # models tried above the largest that fits: memory depends not only on size


@dataclass(frozen=True)
class Rung:
    """The largest size of a ladder that fits with a chance of 95 %, and its answer."""

    size: int
    point: Point
    larger: tuple[Rung, ...] = ()  # those that fit with less of a chance, ascending


def largest(
    makers: Sequence[Callable[[int], Options]],
    sizes: Sequence[int],
    jobs: int,
    least: float | None = None,
    known: Sequence[int] = (),
) -> list[Rung | None]:
    """For each of these requests the largest size with which it fits, by bisection: what fits at a
    size is taken to fit at smaller ones. The smallest is evaluated first.

    least: the chance to fit that is enough, where that is not the usual one; known: sizes that are
    known to fit, from which steps double.
    """
    low = [sizes.index(size) for size in known] or [-1] * len(makers)
    high, reach = [len(sizes)] * len(makers), [1 if known else len(sizes)] * len(makers)
    rungs: list[Rung | None] = [None] * len(makers)
    while open_ := [k for k in range(len(makers)) if high[k] - low[k] > 1]:
        middle = [
            0 if low[k] < 0 else min((low[k] + high[k]) // 2, low[k] + reach[k]) for k in open_
        ]
        requests = [makers[k](sizes[i]) for k, i in zip(open_, middle, strict=True)]
        points = answer(requests, jobs=jobs, reasons=False)
        for k, i, point in zip(open_, middle, points, strict=True):
            if point.roomy if least is None else _chance(point) >= least:
                low[k], reach[k], rungs[k] = i, 2 * reach[k], Rung(sizes[i], point)
            else:
                high[k] = i  # 0 at first: nothing fits
    return rungs


def _chance(point: Point) -> float:
    return 0.0 if point.report is None else point.report.memory.fit_chance


def spread(
    rungs: Sequence[Rung | None],
    sizes: Sequence[int],
    changes: Callable[[Options, int], dict[str, Any]],
    jobs: int,
) -> list[Rung | None]:
    """The rungs with the sizes that fit with each of CHANCES, in their layouts or in another, which
    may need less memory. changes: what a size changes in a request."""
    fitting = [rung for rung in rungs if rung is not None]
    ways = [[way(rung, changes) for rung in fitting] for way in (_pinned, _open)]
    larger: list[list[Rung]] = [[] for _ in fitting]
    least = fitting
    for chance in CHANCES:
        for makers in ways:
            more = largest(makers, sizes, jobs, chance, [rung.size for rung in least])
            least = [was if rung is None else rung for was, rung in zip(least, more, strict=True)]
        for out, rung in zip(larger, least, strict=True):
            out.append(rung)
    left = iter(larger)
    return [None if rung is None else replace(rung, larger=tuple(next(left))) for rung in rungs]


def _pinned(
    rung: Rung, changes: Callable[[Options, int], dict[str, Any]]
) -> Callable[[int], Options]:
    """The request of a rung with its layout, of which no other is sought."""
    fixed = rung.point.taken
    assert fixed is not None  # it fits
    return lambda size: fixed.changed(**changes(fixed, size))


def _open(
    rung: Rung, changes: Callable[[Options, int], dict[str, Any]]
) -> Callable[[int], Options]:
    """The request of a rung as it was, whose layout is sought."""
    request = rung.point.options
    return lambda size: request.changed(**changes(request, size))


def largest_models(
    makers: Sequence[Callable[[ModelSpec], Options]], known: Sequence[ModelSpec], jobs: int
) -> list[Rung | None]:
    """The largest of these models, ascending, with which each of these requests fits: its place
    among them."""
    positions = range(len(known))

    def by_position(ask: Callable[[ModelSpec], Options]) -> Callable[[int], Options]:
        return lambda i: ask(known[i])

    rungs = largest([by_position(ask) for ask in makers], positions, jobs)
    first = [0 if rung is None else rung.size + 1 for rung in rungs]
    places = [
        (k, i)
        for k, start in enumerate(first)
        for i in range(start, min(start + _ABOVE, len(known)))
    ]
    points = answer([makers[k](known[i]) for k, i in places], jobs=jobs, reasons=False)
    for (k, i), point in zip(places, points, strict=True):
        if point.roomy:
            rungs[k] = Rung(i, point)
    return rungs
