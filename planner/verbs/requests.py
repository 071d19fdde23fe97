"""Many options answered, each as `dpplan estimate` would: in blocks of alike requests, on several
processes where asked."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from planner.advise import command_line
from planner.inputs.run import BATCH_TOKENS
from planner.inputs.scenario import Scenario, resolve
from planner.report import layout as report
from planner.search import many
from planner.search.why_none import why_none
from planner.specs.base import PlanError
from planner.specs.documents.estimate import Figures
from planner.specs.model import ModelSpec
from planner.specs.options import LAYOUT, Options, rows

_UNITS = (8, 256)  # requests, at least and at most, that are resolved and evaluated together
_ROUNDS = 8  # units that every process gets, so that all end at about the same time
# requests up to which the broken rule is sought where one has no layout; it takes a search each
_REASONS = 50
_MOST_PROCESSES = 8
_MOST_ODD = 64  # least common odd part of GPU counts that a default batch is made a multiple of
# what may differ within a unit without ending what its requests share
_SHARED = ("gpus", "global_batch", "tokens", "price", *LAYOUT)

Progress = Callable[[int, int], None]  # requests done, requests in all


@dataclass(frozen=True)
class Point:
    """One request and its answer: the figures of the layout taken, or why there is none."""

    options: Options
    report: Figures | None
    refused: str | None
    layouts: int = 0  # that the rules allow

    @property
    def fits(self) -> bool:
        return self.report is not None and self.report.memory.fits

    @property
    def command(self) -> str:
        """The command that asks for it alone."""
        return command_line(self.options)


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
    units, explained = list(_units(requests, jobs)), reasons and len(requests) <= _REASONS
    points: list[Point | None] = [None] * len(requests)
    done = 0

    def take(unit: Sequence[int], found: Sequence[Point]) -> None:
        nonlocal done
        for i, point in zip(unit, found, strict=True):
            points[i] = point
        done += len(unit)
        if progress:
            progress(done, len(requests))

    work = [
        (
            [requests[i] for i in unit],
            None if shapes is None else [shapes[i] for i in unit],
            explained,
        )
        for unit in units
    ]
    if jobs <= 1 or len(units) <= 1:
        for unit, asked in zip(units, work, strict=True):
            take(unit, _answered(asked))
    else:
        with multiprocessing.get_context("spawn").Pool(
            min(jobs, len(units)), _ignore_interrupts
        ) as pool:
            for unit, found in zip(units, pool.imap(_answered, work), strict=True):
                take(unit, found)
    return [point for point in points if point is not None]


def processes(asked: int | None) -> int:
    """Processes of `--jobs`: as asked, else as many as this machine has cores, eight at most."""
    return asked if asked is not None else min(_MOST_PROCESSES, os.cpu_count() or 1)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches every process of a terminal; the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _units(requests: Sequence[Options], jobs: int) -> Iterator[list[int]]:
    """Indices of requests that are answered together: alike ones next to each other."""
    alike: dict[Any, list[int]] = {}
    own = [name for name in rows(Options) if name not in _SHARED]
    for i, options in enumerate(requests):
        alike.setdefault(tuple(getattr(options, name) for name in own), []).append(i)
    order = [i for members in alike.values() for i in members]
    size = min(max(len(order) // (_ROUNDS * max(jobs, 1)), _UNITS[0]), _UNITS[1])
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _answered(asked: tuple[Sequence[Options], Sequence[ModelSpec] | None, bool]) -> list[Point]:
    requests, shapes, reasons = asked
    scenarios: list[Scenario | PlanError] = []
    for options, shape in zip(
        requests, shapes or itertools.repeat(None, len(requests)), strict=True
    ):
        try:
            scenarios.append(resolve(options, shape))
        except PlanError as error:
            scenarios.append(error)
    found = iter(many.choose([s.plans for s in scenarios if isinstance(s, Scenario)]))
    points = []
    for options, scenario in zip(requests, scenarios, strict=True):
        one = scenario if isinstance(scenario, PlanError) else next(found)
        if isinstance(one, many.Chosen):
            assert isinstance(scenario, Scenario)
            points.append(
                Point(
                    options, report.figures(one.estimates, scenario.assumptions), None, one.layouts
                )
            )
        elif isinstance(one, PlanError):
            points.append(Point(options, None, str(one)))
        else:
            assert isinstance(scenario, Scenario)
            why = str(why_none(scenario)) if reasons else "no layout divides GPUs and batch"
            points.append(Point(options, None, why))
    return points


def common_batch(seq_len: int, counts: Sequence[int]) -> int:
    """Sequences per step near 4 Mi tokens, two to some power times what the odd parts of these
    counts need."""
    odd = math.lcm(*(n // (n & -n) for n in counts))
    odd = odd if odd <= _MOST_ODD else 1
    return odd * 2 ** max(0, round(math.log2(BATCH_TOKENS / seq_len / odd)))


# ------------------------------------------------------------------------------------------------ c
