"""Answer many requests in batches, each as `dpplan estimate` would, optionally in worker
processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from planner.inputs import files
from planner.inputs.scenario import Scenario, resolve
from planner.report import layout as report
from planner.search import batched
from planner.search.pick import pick_of
from planner.search.why_none import why_none
from planner.specs.base import PlanError
from planner.specs.documents.estimate import Figures
from planner.specs.model import ModelSpec
from planner.specs.options import LAYOUT, Options, command_line, rows
from planner.specs.options.numbers import number
from planner.verbs.workers import Progress, dealt, shared

_UNITS = (8, 256)  # requests, at least and at most, that are resolved and evaluated together
_ROUNDS = 8  # units that every process gets, so that all end at about the same time
# requests up to which the broken rule is sought where one has no layout; it takes a search each
_REASONS = 50
# rows of layouts that one call of this machine bounds, and layouts that it evaluates: some minutes
# of two cores, at 150,000 per second and core
MOST_WORK = 60_000_000
_PRICED = ("tokens", "price")  # what requests may differ in that share their layouts
# what may differ within a unit without ending what its requests share
_SHARED = ("gpus", "global_batch", "tokens", "price", *LAYOUT)


@dataclass(frozen=True)
class Point:
    """One request and its answer: the figures of the layout taken, or why there is none."""

    options: Options
    report: Figures | None
    refused: str | None
    layouts: int = 0  # that the rules allow
    work: int = 0  # rows that were bounded and layouts that were evaluated
    taken: Options | None = None  # the pick: the request with its free options filled in

    @property
    def fits(self) -> bool:
        return self.report is not None and self.report.memory.fits

    @property
    def roomy(self) -> bool:
        """Whether it fits with the wanted headroom: as requested, by default for a 95 % chance to
        fit."""
        if self.report is None or not self.fits:
            return False
        headroom, memory = number(self.options, "headroom"), self.report.memory
        if headroom is None:
            return memory.verdict == "fits"
        return memory.headroom_bytes >= headroom * memory.capacity_bytes

    @property
    def command(self) -> str:
        """The command of this request."""
        return command_line(self.options)

    @property
    def pick(self) -> str | None:
        """The command that estimates exactly the layout taken."""
        return None if self.taken is None else command_line(self.taken)


@dataclass(frozen=True)
class _Unit:
    """Requests that one process answers together. shapes: models in place of those they name;
    reasons: seek the rule that forbids every layout of a request."""

    requests: Sequence[Options]
    shapes: Sequence[ModelSpec | None]
    reasons: bool


@dataclass(frozen=True)
class _Answered:
    """The points of a unit, and the files that were read for them."""

    points: Sequence[Point]
    read: Set[files.FileId]


def answer(
    requests: Sequence[Options],
    *,
    jobs: int = 1,
    progress: Progress | None = None,
    shapes: Sequence[ModelSpec] | None = None,
    reasons: bool = True,
) -> list[Point]:
    """The points of these requests, in their order.

    jobs: processes; shapes: models, one per request, in place of those they name; reasons: seek the
    rule that forbids every layout of a request. What is wrong with one request is its `refused`;
    the others are answered.
    """
    units = list(_units(requests, jobs))
    work = [
        _Unit(
            [requests[i] for i in unit],
            [None if shapes is None else shapes[i] for i in unit],
            reasons and len(requests) <= _REASONS,
        )
        for unit in units
    ]
    points: dict[int, Point] = {}
    work_done: dict[Any, int] = {}
    with dealt(_answered, work, min(jobs, len(units))) as answers:
        for unit, answered in zip(units, answers, strict=True):
            points.update(zip(unit, answered.points, strict=True))
            files.note(answered.read)
            work_done |= _work(answered.points)
            _check_work(work_done, len(requests))
            if progress:
                progress(len(points), len(requests))
    return [points[i] for i in range(len(requests))]


def _work(points: Sequence[Point]) -> dict[Any, int]:
    """Work of each of these requests, those that only prices tell apart once."""
    names = [name for name in rows(Options) if name not in _PRICED]
    return {tuple(getattr(p.options, name) for name in names): p.work for p in points}


def _check_work(work: Mapping[Any, int], requests: int) -> None:
    """Refuse what would take this machine minutes. Raises PlanError."""
    pool = shared()
    if pool is not None and pool.remote:
        return
    if sum(work.values()) > MOST_WORK:
        raise PlanError(
            "layout",
            f"{requests:,} requests",
            f"need more than {MOST_WORK:,} bounds of layouts, already the first {len(work):,}"
            " requests; fix some of the layout, such as --tp, --pp, --recompute or --micro-batch,"
            " ask for fewer, or share the work (--dask)",
        )


def _units(requests: Sequence[Options], jobs: int) -> Iterator[list[int]]:
    """Indices of requests that are answered together: alike ones next to each other."""
    alike: dict[Any, list[int]] = {}
    names = [name for name in rows(Options) if name not in _SHARED]
    for i, options in enumerate(requests):
        alike.setdefault(tuple(getattr(options, name) for name in names), []).append(i)
    order = [i for members in alike.values() for i in members]
    pool = shared()
    least = max(1, -(-len(order) // jobs)) if pool and pool.are_up else _UNITS[0]
    size = min(max(len(order) // (_ROUNDS * max(jobs, 1)), min(least, _UNITS[0])), _UNITS[1])
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _answered(unit: _Unit) -> _Answered:
    with files.remembered() as read:
        scenarios = list(map(_resolved, unit.requests, unit.shapes))
        choices = iter(batched.choose([s.plans for s in scenarios if isinstance(s, Scenario)]))
        points = [
            Point(options, None, str(scenario))
            if isinstance(scenario, PlanError)
            else _point(options, scenario, next(choices), unit.reasons)
            for options, scenario in zip(unit.requests, scenarios, strict=True)
        ]
    return _Answered(points, read)


def _resolved(options: Options, shape: ModelSpec | None) -> Scenario | PlanError:
    try:
        return resolve(options, shape)
    except PlanError as error:
        return error


def _point(
    options: Options, scenario: Scenario, chosen: batched.Chosen | PlanError | None, reasons: bool
) -> Point:
    if isinstance(chosen, PlanError):
        return Point(options, None, str(chosen))
    if chosen is None:
        why = str(why_none(scenario)) if reasons else "no layout divides GPUs and batch"
        return Point(options, None, why)
    answered = report.figures(chosen.estimates, scenario.sentences)
    pick = pick_of(scenario.options, chosen.estimates)
    return Point(options, answered, None, chosen.layouts, chosen.work, pick)
