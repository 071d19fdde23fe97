"""Which numbers of GPUs of each kind are tried: all of them where their layouts are few, else a
ladder of them, and the ones next to what answers until nothing is left between."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from planner.inputs.cluster import price_of
from planner.specs.documents.recommend import ClusterRow
from planner.specs.options.recommend import GOALS, Limits
from planner.verbs.recommend.counts import ORDER, judged
from planner.verbs.recommend.kinds import Kind
from planner.verbs.requests import Point, answer
from planner.verbs.workers import Progress

# choices. Work of all counts of all kinds up to which each count is tried: some ten seconds of one
# core; rungs of the ladder of a kind; kinds whose ladder is refined, those nearest to the goal
EVERY = 2_000_000
RUNGS = 4
NEAREST = 3

Tried = dict[int, Point]  # by position among the requests of a kind


def points(
    kinds: Sequence[Kind], limits: Limits, *, jobs: int, progress: Progress | None
) -> list[list[Point]]:
    """The counts of each kind that are tried, ascending. The largest first: it tells how much work
    there is at most, and what is out of reach with the largest is so with fewer."""
    tried: list[Tried] = [{} for _ in kinds]
    whole = [range(len(kind.requests)) for kind in kinds]
    rungs = [_rungs(len(kind.requests)) for kind in kinds]
    _try(kinds, tried, [some[-1:] for some in rungs], jobs, progress)
    if _work(kinds, tried) <= EVERY:
        _try(kinds, tried, whole, jobs, progress)
    else:
        rows = [_rows(kind, known, limits) for kind, known in zip(kinds, tried, strict=True)]
        hopeful = [any(map(_in_reach(limits), of_kind.values())) for of_kind in rows]
        some = [rung if hope else () for rung, hope in zip(rungs, hopeful, strict=True)]
        while _try(kinds, tried, some, jobs, progress):
            some = _refined(kinds, tried, limits)
    return [[known[i] for i in sorted(known)] for known in tried]


def _rungs(count: int) -> Sequence[int]:
    """Positions from the first to the last, evenly spread: counts are spread by ratio."""
    if count <= RUNGS:
        return range(count)
    return [round(i * (count - 1) / (RUNGS - 1)) for i in range(RUNGS)]


def _try(
    kinds: Sequence[Kind],
    tried: Sequence[Tried],
    wanted: Sequence[Sequence[int]],
    jobs: int,
    progress: Progress | None,
) -> bool:
    """Evaluate the wanted positions of each kind that are not yet; whether there were any."""
    places = [
        (k, i) for k, some in enumerate(wanted) for i in dict.fromkeys(some) if i not in tried[k]
    ]
    requests = [kinds[k].requests[i] for k, i in places]
    points = answer(requests, jobs=jobs, progress=progress, reasons=False)
    for (k, i), point in zip(places, points, strict=True):
        tried[k][i] = point
    return bool(places)


def _work(kinds: Sequence[Kind], tried: Sequence[Tried]) -> float:
    """Work of all counts of all kinds, extrapolated from the counts that were tried."""
    return sum(
        len(kind.requests) * sum(point.work for point in known.values()) / len(known)
        for kind, known in zip(kinds, tried, strict=True)
        if known
    )


def _rows(kind: Kind, known: Tried, limits: Limits) -> dict[int, ClusterRow]:
    """Counts that were tried, against the limits; without those that have no layout."""
    rows = {
        i: judged(kind.name, point, limits, price_of(point.options)).row
        for i, point in known.items()
    }
    return {i: row for i, row in rows.items() if row is not None}


def _in_reach(limits: Limits) -> Callable[[ClusterRow], bool]:
    """Whether fewer GPUs than so many could be within the limits: only memory and days ask for
    more."""
    days = math.inf if limits.days is None else limits.days
    return lambda row: row.fits and (row.days is None or row.days <= days)


def _refined(kinds: Sequence[Kind], tried: Sequence[Tried], limits: Limits) -> list[Sequence[int]]:
    """The next positions of the kinds nearest to the goal."""
    rows = [_rows(kind, known, limits) for kind, known in zip(kinds, tried, strict=True)]
    near = sorted(range(len(kinds)), key=lambda k: _nearness(rows[k], limits))[:NEAREST]
    return [
        _beside(tried[k], _best(rows[k], limits), len(kinds[k].requests) - 1) if k in near else ()
        for k in range(len(kinds))
    ]


def _nearness(rows: Mapping[int, ClusterRow], limits: Limits) -> tuple[float, ...]:
    """Order of kinds: those within the limits first, by the goal, then by how far they miss."""
    within = [ORDER[limits.goal](row) for row in rows.values() if row.within]
    if within:
        return 0.0, *min(within)
    return min((_miss(row, limits) for row in rows.values()), default=(3.0,))


def _miss(row: ClusterRow, limits: Limits) -> tuple[float, ...]:
    """How far a count is from the limits: in days and dollars where it fits, else in bytes."""
    if not row.fits:
        return 2.0, -row.headroom_bytes
    taken = ((row.days, limits.days), (row.cost_usd, limits.budget))
    over = (math.inf if is_ is None else is_ / limit for is_, limit in taken if limit)
    return 1.0, max(over, default=0.0)


def _best(rows: Mapping[int, ClusterRow], limits: Limits) -> set[int]:
    """Positions that answer: the best by each goal, or the nearest miss."""
    within = [i for i in rows if rows[i].within]
    if within:
        return {min(within, key=lambda i: ORDER[goal](rows[i])) for goal in GOALS}
    nearest = min(rows, key=lambda i: _miss(rows[i], limits), default=None)
    return set() if nearest is None else {nearest}


def _beside(known: Tried, best: set[int], last: int) -> list[int]:
    """Half way from each of these positions to the next ones that were tried, and the two next to
    it on both sides: some counts divide worse than their neighbours."""
    positions: set[int] = set()
    for i in best:
        below = max((j for j in known if j < i), default=i)
        above = min((j for j in known if j > i), default=i)
        halves = {(below + i) // 2, (i + above + 1) // 2}
        positions |= halves - set(known) or {i - 2, i - 1, i + 1, i + 2}
    return sorted(i for i in positions if 0 <= i <= last)
