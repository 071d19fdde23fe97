"""Which numbers of GPUs of each kind are tried: all of them where their layouts are few, else a
ladder of them, and the ones next to what answers until nothing is left between."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.inputs.cluster import price_of
from planner.specs.documents.recommend import ClusterRow
from planner.specs.options import LAYOUT, Options, rows
from planner.specs.options.recommend import GOALS, Goal, Limits
from planner.verbs.recommend.bound import Least, Market, cost_in
from planner.verbs.recommend.counts import ORDER, judged
from planner.verbs.recommend.kinds import Kind, expected_days
from planner.verbs.recommend.limits import in_reach
from planner.verbs.requests import Point, answer
from planner.verbs.workers import Progress

# choices. Work of all counts of all kinds up to which each count is tried, some ten seconds of one
# core, and of a count without any layout; rungs of the ladder of a kind; kinds whose ladder is
# refined, those nearest to the goal
EVERY = 2_000_000
_EACH = 20_000
RUNGS = 4
NEAREST = 3
# least GPU-seconds of a step over those with fewer GPUs, and with more, that were tried: more GPUs
# seldom take fewer, and fewer save bubbles and communication
_OF_FEWER = 0.85
_OF_MORE = 0.5
# least seconds of a step over those with the software of a pick: of a near count of the kind, or of
# another kind; how many times as many GPUs, or as few, are near: kernels and overlap of a pick
# that is far away cost a ninth, and once half
_OF_KIND = 0.93
_OF_OTHERS = 0.85
_NEAR = 1.5
_SOFTWARE = [name for name, row in rows(Options).items() if row.says.free and name not in LAYOUT]

Tried = dict[int, Point]  # by position among the requests of a kind


@dataclass(frozen=True)
class Tries:
    """The trials of each kind."""

    points: list[list[Point]]  # its counts that were searched, ascending
    looked: list[ClusterRow | None]  # the best of those that were only looked at


def points(kinds: Sequence[Kind], limits: Limits, *, jobs: int, progress: Progress | None) -> Tries:
    """The counts of each kind that are tried, ascending: all of them where that is little work,
    else those that a bound does not rule out (`bound`), the most promising kinds first, and of each
    its largest count first: what is out of reach with the largest is so with fewer."""
    trials = _Trials(kinds, limits, jobs, progress)
    order = _promising(kinds, limits.goal)
    first, rest = order[: len(GOALS)], order[len(GOALS) :]
    rungs = [_rungs(len(kind.requests)) for kind in kinds]
    for rung in (-1, -2):
        if not trials.work():  # none known, where the largest has no layout
            trials.run({k: rungs[k][rung:][:1] for k in first})
    if trials.work() <= EVERY:
        trials.run({k: range(len(kind.requests)) for k, kind in enumerate(kinds)})
        return trials.tries
    together = max(jobs, 1)
    for group in (first, *(rest[i : i + together] for i in range(0, len(rest), together))):
        trials.run_open({k: trials.open(k, rungs[k][-1:], ("fastest",)) for k in group})
        while trials.run_open({k: trials.rung(k, rungs[k]) for k in group}):
            pass
        if group is first:
            trials.refine()
    trials.refine()
    return trials.tries


def _rungs(count: int) -> Sequence[int]:
    """Positions from the first to the last, evenly spread: counts are spread by ratio."""
    if count <= RUNGS:
        return range(count)
    return [round(i * (count - 1) / (RUNGS - 1)) for i in range(RUNGS)]


def _promising(kinds: Sequence[Kind], goal: Goal) -> list[int]:
    """Kinds with counts, in turn the one with the least bound by each goal, this goal first."""

    def order(by: Goal) -> list[int]:
        at = {"cheapest": 0, "smallest": 0, "fastest": -1}[by]
        known = {
            k: kind.least.order(by, kind.requests[at].gpus)
            for k, kind in enumerate(kinds)
            if kind.least is not None
        }
        return sorted(known, key=known.__getitem__)

    goals = sorted(GOALS, key=lambda by: by != goal)
    return list(dict.fromkeys(itertools.chain(*zip(*map(order, goals), strict=True))))


class _Trials:
    """Counts that were tried, and the best of them by each goal."""

    def __init__(
        self, kinds: Sequence[Kind], limits: Limits, jobs: int, progress: Progress | None
    ) -> None:
        self.kinds, self.limits, self.jobs, self.progress = kinds, limits, jobs, progress
        self.tried: list[Tried] = [{} for _ in kinds]
        # of those with a layout, against the limits, some with the software of a pick
        self.rows: list[dict[int, ClusterRow]] = [{} for _ in kinds]
        self.rough: dict[tuple[int, int], float] = {}  # bounds of a step of these, see `_look_at`
        self.best: dict[tuple[Goal, Market], tuple[float, ...]] = {}

    @property
    def tries(self) -> Tries:
        """The trials so far."""
        looked: list[ClusterRow | None] = []
        for k, of_kind in enumerate(self.rows):
            some = [row for i, row in of_kind.items() if (k, i) in self.rough]
            looked.append(min(some, key=ORDER[self.limits.goal], default=None))
        return Tries([[known[i] for i in sorted(known)] for known in self.tried], looked)

    def run(self, wanted: Mapping[int, Sequence[int]]) -> bool:
        """Evaluate the wanted positions of these kinds that are not yet; whether there were any."""
        places = self._places(wanted)
        for (k, i), point in zip(places, self._answers(places), strict=True):
            self.tried[k][i] = point
            self.rough.pop((k, i), None)
            row = self._judged(k, point)
            if row is not None:
                self.rows[k][i] = row
                self._learn(k, row)
        return bool(places)

    def run_open(self, wanted: Mapping[int, Sequence[int]]) -> bool:
        """Look at these positions with the software of picks, and evaluate those that could be the
        best by some goal; whether there were any."""
        places = self._places(wanted)
        new = [place for place in places if self.best and place not in self.rough]
        self._look_at(new)
        left: dict[int, list[int]] = {}
        for k, i in places:
            if self.open(k, [i]):
                left.setdefault(k, []).append(i)
        return self.run(left) or bool(new)

    def _places(self, wanted: Mapping[int, Sequence[int]]) -> list[tuple[int, int]]:
        return [
            (k, i)
            for k, some in wanted.items()
            for i in dict.fromkeys(some)
            if i not in self.tried[k]
        ]

    def _answers(
        self, places: Sequence[tuple[int, int]], software: Sequence[Options] = ()
    ) -> list[Point]:
        """The points of these places, with the software of picks where these are given."""
        requests = [self.kinds[k].requests[i] for k, i in places]
        if software:
            requests = [_with(*pair) for pair in zip(requests, software, strict=True)]
        return answer(requests, jobs=self.jobs, progress=self.progress, reasons=False)

    def _judged(self, k: int, point: Point) -> ClusterRow | None:
        return judged(self.kinds[k].name, point, self.limits, price_of(point.options)).row

    def _look_at(self, places: Sequence[tuple[int, int]]) -> None:
        """Search these positions with the stack, kernels and overlap of the pick of a near count of
        their kind, else of another one: a tenth of the work of a search that settles them. Where
        there is none or it does not fit so, nothing is learnt."""
        guides = [self._guide(k, i) for k, i in places]
        seen = [(place, guide) for place, guide in zip(places, guides, strict=True) if guide]
        points = self._answers([place for place, _ in seen], [taken for _, (taken, _) in seen])
        for ((k, i), (_, share)), point in zip(seen, points, strict=True):
            row = self._judged(k, point)
            if row is not None and point.roomy:
                self.rows[k][i] = row
                self.rough[k, i] = share

    def _guide(self, k: int, i: int) -> tuple[Options, float] | None:
        """A pick that fits on nearly as many GPUs, and the least share of a step with its software
        that a search may find; None where there is none."""
        at = self.kinds[k].requests[i].gpus
        for kinds, share in (([k], _OF_KIND), (range(len(self.kinds)), _OF_OTHERS)):
            near = {
                max(point.options.gpus / at, at / point.options.gpus): point.taken
                for kind in kinds
                for point in self.tried[kind].values()
                if point.roomy and point.taken is not None
            }
            if near and min(near) <= _NEAR:
                return near[min(near)], share
        return None

    def _learn(self, k: int, row: ClusterRow) -> None:
        if not row.within:
            return
        for goal, market in self._contests(k):
            order = ORDER[goal](row)
            if market is not None and (least := self.kinds[k].least) is not None:
                order = cost_in(row, least, market), row.gpus
            self.best[goal, market] = min(order, self.best.get((goal, market), order))

    def _contests(
        self, k: int, goals: Sequence[Goal] = GOALS, elsewhere: bool = True
    ) -> Iterator[tuple[Goal, Market]]:
        """By which a kind can be the best: each goal, and the cheapest also in other markets
        (elsewhere)."""
        yield from ((goal, None) for goal in goals)
        least = self.kinds[k].least
        # in another market other clusters are within a budget
        elsewhere = elsewhere and "cheapest" in goals and self.limits.budget is None
        if least is not None and elsewhere:
            yield from (("cheapest", market) for market in least.usd if market is not None)

    def open(
        self,
        k: int,
        positions: Sequence[int],
        goals: Sequence[Goal] = GOALS,
        *,
        elsewhere: bool = True,
    ) -> list[int]:
        """Positions of a kind that a bound does not rule out: that could be better
        by one of the goals than all that were tried, once some are."""
        contests = list(self._contests(k, goals, elsewhere))
        return [
            i
            for i in positions
            if self._could_win(
                self.kinds[k].least, gpus := self.kinds[k].requests[i].gpus, contests
            )
            and self._could_win(self._least(k, gpus), gpus, contests)
        ]

    def _could_win(
        self, least: Least | None, gpus: int, contests: Sequence[tuple[Goal, Market]]
    ) -> bool:
        """Whether a count with this bound could be within the days and the best by some goal."""
        if least is None or (self.best and least.days(gpus) > expected_days(self.limits)):
            return False
        return any(
            least.order(goal, gpus, market) <= self.best.get((goal, market), (math.inf,))
            for goal, market in contests
        )

    def _least(self, k: int, gpus: int) -> Least | None:
        """The bounds of a kind at this many GPUs, with what its counts that were tried tell."""
        least = self.kinds[k].nearest
        if least is None:
            return None
        taken = {}
        for i, row in self.rows[k].items():
            step_gpu_s = row.step_seconds * row.gpus
            if (share := self.rough.get((k, i))) is None:
                if row.fits:
                    taken[row.gpus] = step_gpu_s
            elif row.gpus == gpus:  # says nothing about other counts: it may divide badly
                return least.at_least(share * step_gpu_s)
        if not taken:
            return least
        fewer, more = [n for n in taken if n <= gpus], [n for n in taken if n >= gpus]
        floor = min(
            _OF_FEWER * taken[max(fewer)] if fewer else math.inf,
            (_OF_FEWER if fewer else _OF_MORE) * taken[min(more)] if more else math.inf,
        )
        return least.at_least(floor)

    def work(self) -> float:
        """Work of all counts of all kinds, extrapolated from the counts that were tried."""
        known = [point.work for of_kind in self.tried for point in of_kind.values() if point.work]
        if not known:
            return 0.0
        each = _EACH + sum(known) / len(known)
        return sum(len(kind.requests) for kind in self.kinds) * each

    def _known(self, k: int) -> set[int]:
        """Positions that were evaluated or looked at."""
        return {*self.tried[k], *self.rows[k]}

    def _rows_at(self, k: int, positions: Sequence[int]) -> list[ClusterRow]:
        return [self.rows[k][i] for i in positions if i in self.rows[k]]

    def rung(self, k: int, rungs: Sequence[int]) -> list[int]:
        """The next rung of the ladder of a kind: below those that memory and days allow, above
        those that they do not. Of what they allow fewer GPUs take fewer GPU-hours, mostly."""
        known, last = self._known(k), rungs[-1]
        if last in known and not in_reach(self._rows_at(k, [last]), self.limits):
            return []  # nor is any with fewer
        start = rungs[(len(rungs) - 1) // 2]
        if start not in known:
            return self.open(k, [start], ("cheapest", "smallest"))
        allowed = [i for i, row in self.rows[k].items() if in_reach([row], self.limits)]
        if set(allowed) - {last}:
            some = [i for i in rungs if i < min(allowed)][-1:]
        else:
            some = [i for i in rungs if i > max(i for i in known if i != last or i == start)][:1]
        return [] if set(some) & known else self.open(k, some, ("cheapest", "smallest"))

    def refine(self) -> None:
        """Try what lies beside the best counts of the kinds nearest to the goal, until nothing is
        left between."""
        while self.run_open(self._beside_best()):
            pass

    def _beside_best(self) -> dict[int, list[int]]:
        known = [k for k, rows in enumerate(self.rows) if rows]
        near = sorted(known, key=lambda k: _nearness(self.rows[k], self.limits))[:NEAREST]
        return {
            k: [
                j
                for goals, i in _best(self.rows[k], self.limits)
                for j in self.open(k, self._beside(k, i), goals, elsewhere=False)
            ]
            for k in near
        }

    def _beside(self, k: int, i: int) -> list[int]:
        """Half way from a position to the next ones that were tried or below which a bound rules
        all out, and the two next to it on both sides: some counts divide worse than their
        neighbours."""
        known, last = self._known(k), len(self.kinds[k].requests) - 1
        lowest = min(self.open(k, range(i), ("cheapest", "smallest")), default=i)
        below = max((j for j in known if j < i), default=lowest)
        above = min((j for j in known if j > i), default=i)
        halves = {(below + i) // 2, (i + above + 1) // 2}
        positions = halves - known or {i - 2, i - 1, i + 1, i + 2}
        return sorted(j for j in positions if 0 <= j <= last)


def _with(request: Options, taken: Options) -> Options:
    """The request with the stack and the free options of a pick."""
    given = {name: value for name in _SOFTWARE if (value := getattr(taken, name)) is not None}
    return request.changed(stack=taken.stack, stack_defaults=True, **given)


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


def _best(rows: Mapping[int, ClusterRow], limits: Limits) -> Iterator[tuple[Sequence[Goal], int]]:
    """Positions that answer, each with the goals by which those beside it could be better: the best
    by each goal, or the nearest miss."""
    within = [i for i in rows if rows[i].within]
    if not within:
        yield GOALS, min(rows, key=lambda i: _miss(rows[i], limits))
        return
    for goal in GOALS:
        beside: Sequence[Goal] = (goal,) if goal == "fastest" else ("cheapest", "smallest")
        yield beside, min(within, key=lambda i: ORDER[goal](rows[i]))
