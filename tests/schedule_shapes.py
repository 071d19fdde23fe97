"""Shapes of pipeline schedules that tests try, and their times on uniform stages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from planner import schedules
from planner.schedules import timing
from planner.schedules.base import Work
from planner.specs.layout import SCHEDULES

UNIT = Work(1.0, 1.0, 1.0)


def chunks(name: str) -> tuple[int, ...]:
    return {"one": (1,), "two": (2,), "several": (2, 3)}[schedules.BY_NAME[name].CHUNKS]


def shapes() -> Iterator[tuple[str, int, int, int]]:
    """(schedule, p, m, v): several hundred that the schedule allows."""
    for name, p, m in itertools.product(
        SCHEDULES, (1, 2, 3, 4, 5, 8), (1, 2, 3, 4, 6, 8, 12, 16, 17, 24)
    ):
        for v in chunks(name):
            if schedules.BY_NAME[name].allows(p, m, v):
                yield name, p, m, v


SHAPES = list(shapes())


def timed(name: str, p: int, m: int, v: int, work: Work = UNIT, **other: Any) -> timing.Timing:
    """Ranks that take `work` seconds per micro-batch, in equal chunks."""
    return timing.timed(
        schedules.program(name, p, m, v), timing.Durations(*(x / v for x in work), **other)
    )


def idle(name: str, p: int, m: int, v: int, work: Work = UNIT) -> float:
    """Seconds that the closed form leaves idle on uniform stages."""
    fill = Work(*((p - 1) * x for x in work))
    return float(
        np.asarray(schedules.BY_NAME[name].idle_s(fill, work, float(p), float(m), float(v)))
    )
