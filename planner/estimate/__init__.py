"""The only composition: a plan and a table of layouts become memory, time and rules, one value per
layout."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.estimate.factored import Space
from planner.estimate.machine import Machine
from planner.estimate.memory import Memory, Need, most_of_host, needed, peak_memory
from planner.estimate.run import busy_s, step_energy_j
from planner.estimate.step import StepTime, step_time
from planner.ledger import Array, Ledger, each, section
from planner.specs.columns import Columns
from planner.specs.plan import Plan

__all__ = ["Estimates", "Outline", "OutlineTime", "cut", "evaluate", "fit", "outline"]


_SMALL = 4096  # layouts up to which plain columns are faster than factored ones
_SEVERAL = 8192  # fitting layouts among more, likewise (benchmarks/search_rate.py)
_FEW_STAGES = 64  # of all layouts together, up to which all are looked at: none asks for more


@dataclass(frozen=True)
class Estimates:
    """Answers for every row of a table."""

    plan: Plan
    table: Columns
    time: StepTime
    memory: Memory
    fits: Array  # bool
    host_fits: Array  # bool: what is offloaded fits the host memory, where its size is known
    drive_fits: Array  # bool: the NVMe drives, likewise


def evaluate(
    plan: Plan, table: Columns, stages: Array | None = None, numbers: Machine | None = None
) -> Estimates:
    """Estimate every layout of the table.

    stages: pipeline stages to look at for memory, shape (stages, rows); by default those that can
    be the worst.
    numbers: replaces the machine of the plan, for sensitivities and ablations.
    """
    with section("step time"):
        time = step_time(plan, table, numbers)
    with section("memory"):
        memory = peak_memory(plan, table, stages)
    return Estimates(plan, table, time, memory, *fit(plan, memory))


def every_stage(table: Columns) -> Array | None:
    """All stages, where all layouts of a small table have as many; else None."""
    pp = table.pp
    if len(pp) * pp[0] > _FEW_STAGES or (pp != pp[0]).any():
        return None
    return np.arange(pp[0])[:, None]


def cut(value: Any, row: int, rows: int) -> Any:
    """Select one layout from a record of many, by the last axis of every array."""
    if rows == 1:
        return value

    def of_row(x: Any) -> Any:
        mine = isinstance(x, np.ndarray) and x.ndim and x.shape[-1] == rows
        return x[..., row : row + 1] if mine else x

    return each(value, of_row)


def host_room(plan: Plan) -> float | None:
    """Bytes of host memory per GPU, where known."""
    host = plan.cluster.host_memory
    return None if host is None else float(host) / plan.cluster.gpus_per_host


def fit(plan: Plan, memory: Memory | Need) -> tuple[Array, Array, Array]:
    """Whether each layout fits: (GPU, host and drives together, host memory, drives). Host memory
    and drives count where their size is known."""
    usable = plan.usable_bytes
    room, sharing = host_room(plan), plan.cluster.gpus_per_host
    most = memory.host
    if not isinstance(memory, Need):
        most = most_of_host(plan, most, memory.host_pretrained)
    host_fits = most <= (np.inf if room is None else room)
    nvme = plan.cluster.nvme
    drive_fits = np.ones_like(host_fits)
    if nvme is not None and nvme.capacity is not None and memory.drive is not None:
        drive_fits = memory.drive <= float(nvme.capacity) / sharing
    return (memory.device <= usable) & host_fits & drive_fits, host_fits, drive_fits


@dataclass(frozen=True)
class OutlineTime:
    """Seconds of one optimizer step and its recompute seconds, as in StepTime."""

    seconds: Array
    components: Ledger


@dataclass(frozen=True)
class Outline:
    """Figures of every layout of a space that a choice needs; `full` has the rest for some of them.
    Time is evaluated lazily: layouts that do not fit seldom need it."""

    plan: Plan
    space: Space
    memory: Need
    fits: Array
    host_fits: Array
    drive_fits: Array
    numbers: Machine | None = None
    peaks: Memory | None = None  # memory of all layouts in full, where they are few
    timed: OutlineTime | None = None  # of all layouts, where it was evaluated before
    tick: Callable[[float], None] | None = None  # called while time is evaluated

    @functools.cached_property
    def table(self) -> Columns:
        """All layouts as plain columns."""
        return self.rows(None)

    def rows(self, rows: Array | None) -> Columns:
        """Some layouts as plain columns."""
        return self.space.flat(rows)

    @functools.cached_property
    def time(self) -> OutlineTime:
        """Step times of all layouts."""
        if self.timed is not None:
            return self.timed
        if self.whole is not None:
            return _short(self.whole.time)
        time = step_time(self.plan, self.space.columns(), self.numbers)
        wanted = time.seconds, time.components["recompute"]
        seconds, repeated = self.space.values(*wanted, tick=self.tick)
        return OutlineTime(seconds, {"recompute": repeated})

    @functools.cached_property
    def time_where_fits(self) -> OutlineTime:
        """Step times of the layouts that fit; possibly infinite for others."""
        fitting = np.flatnonzero(self.fits)
        few = self.peaks is not None and len(fitting)
        known = self.timed is not None or "time" in self.__dict__
        if few or known or len(fitting) > _SEVERAL:
            return self.time
        seconds, repeated = np.full((2, len(self.fits)), np.inf)
        if len(fitting):
            step = _short(step_time(self.plan, self.rows(fitting), self.numbers))
            seconds[fitting], repeated[fitting] = step.seconds, step.components["recompute"]
        return OutlineTime(seconds, {"recompute": repeated})

    @functools.cached_property
    def whole(self) -> Estimates | None:
        """All layouts in full, where they are few."""
        if self.peaks is None:
            return None
        time = step_time(self.plan, self.table, self.numbers)
        fits = (self.fits, self.host_fits, self.drive_fits)
        return Estimates(self.plan, self.table, time, self.peaks, *fits)

    @property
    def evaluated(self) -> Estimates | None:
        """All layouts in full, if they have been evaluated; None otherwise."""
        return self.__dict__.get("whole")

    def full(self, rows: Array) -> Estimates:
        """Everything of some layouts, evaluated as `evaluate` does."""
        table = self.rows(np.asarray(rows))
        return evaluate(self.plan, table, every_stage(table))

    @functools.cached_property
    def joules(self) -> Array:
        """Energy of a step of every layout at the wall plug; evaluated lazily."""
        if self.whole is not None:
            return step_energy_j(self.plan, self.whole.time.seconds, busy_s(self.whole.time))
        time = step_time(self.plan, self.space.columns())
        (busy,) = self.space.values(busy_s(time))
        return step_energy_j(self.plan, self.time.seconds, busy)

    def some(self, rows: Sequence[int]) -> list[tuple[Estimates, int]]:
        """Each of these layouts as a row of a table of full estimates; what was evaluated before is
        not evaluated again."""
        if self.whole is not None:
            return [(self.whole, row) for row in rows]
        missing = sorted(set(rows) - self._seen.keys())
        if missing:
            estimates = self.full(np.array(missing))
            self._seen.update({row: (estimates, i) for i, row in enumerate(missing)})
        return [self._seen[row] for row in rows]

    @functools.cached_property
    def _seen(self) -> dict[int, tuple[Estimates, int]]:
        return {}


def _short(time: StepTime) -> OutlineTime:
    return OutlineTime(time.seconds, {"recompute": time.components["recompute"]})


def outline(
    plan: Plan,
    space: Space,
    numbers: Machine | None = None,
    tick: Callable[[float], None] | None = None,
) -> Outline:
    """Estimate every layout of a space by the formulas of `evaluate`. tick: called with the share
    done, now and then; who watches waits for the time of all, too."""
    if space.count <= _SMALL:
        table = space.flat()
        peak = peak_memory(plan, table, every_stage(table))
        host = most_of_host(plan, peak.host, peak.host_pretrained)
        need = Need(peak.device, host, peak.drive, peak.firm)
        return Outline(plan, space, need, *fit(plan, peak), numbers, peak)
    columns = space.columns()
    need = needed(plan, columns)
    known = {"drive": need.drive, "firm": need.firm}
    others = {name: column for name, column in known.items() if column is not None}
    first, second = (None, None) if tick is None else (_half(tick, 0), _half(tick, 1))
    device, host, *rest = space.values(need.device, need.host, *others.values(), tick=first)
    need = Need(device, host, **dict(zip(others, rest, strict=True)))
    result = Outline(plan, space, need, *fit(plan, need), numbers, tick=second)
    if tick is not None:
        _ = result.time
    return result


def _half(tick: Callable[[float], None], which: int) -> Callable[[float], None]:
    return lambda share: tick((which + share) / 2)
