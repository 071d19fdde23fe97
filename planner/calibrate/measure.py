"""Visit the cases in turn until each has enough quiet samples: a disturbed moment costs a case one
visit, not its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

from planner.calibrate.cases import Effort
from planner.calibrate.quiet import Probe
from planner.calibrate.record import Record, Records, visit
from planner.calibrate.settings import Progress

Timed = Callable[[], float]  # runs once; seconds per item
Task = tuple[Record, Callable[[], Timed]]  # what is measured, and what prepares the timed work


def measure(
    stage: str,
    tasks: Sequence[Task],
    probe: Probe,
    records: Records,
    effort: Effort,
    total_s: float,
    tell: Callable[[Progress], None],
    conditions: Callable[[], dict[str, Any]] = dict,
    before: Callable[[], None] = lambda: None,
    busy: bool = False,
    more: int = 1,
) -> None:
    """Measure `tasks` and append to `records`; `before` is called before each case (ranks meet
    there).

    Samples of a case are taken at several moments (Effort.moments). more: times as many of both,
    for work that varies from call to call. Ends when all cases have their samples, after
    Effort.visits visits, or once total_s has passed and each was visited.
    """
    start_s = time.perf_counter()
    want = more * effort.samples
    at_once = ceil(want / min(more * effort.moments, effort.visits))
    for again in range(effort.visits):
        open_tasks = [
            task
            for task in tasks
            if probe.agree(float(records.quiet(task[0], probe.usual_s) < want))
        ]
        done = len(tasks) - len(open_tasks)
        for record, prepare in open_tasks:
            left = total_s - (time.perf_counter() - start_s)
            if again and probe.agree(-left) > 0:
                return
            before()
            tell(Progress(stage, done, len(tasks), max(left, 0.0), probe.disturbed_frac))
            samples = probe.samples(
                prepare(), want=at_once, wait_s=effort.wait_s, most_s=effort.visit_s, busy=busy
            )
            records.add({**record, **visit(samples), **conditions()})
            done += records.quiet(record, probe.usual_s) >= want
        if not open_tasks:
            break
    tell(Progress(stage, len(tasks), len(tasks), 0.0, probe.disturbed_frac))
