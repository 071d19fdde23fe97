"""Effect of single options: runs that state one, as stated and without it.

python -m benchmarks.studies.worth [--suite SUITE] [RUNS.csv ...]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.studies.runs import named, show
from planner.inputs.calibration import Calibration
from planner.specs.base import PlanError
from planner.studies.runs.cells import Row, options_of, with_options
from planner.studies.runs.table import WORD
from planner.studies.validate.errors import errors
from planner.studies.validate.rows import measured
from planner.studies.validate.scored import Scored, scored
from planner.units import percent
from planner.views.view import Block

_CHANGED = 1e-3  # relative change of step or peak from which an option counts as doing something
_FEWEST_RUNS = 3  # that state an option, for it to be listed

# words of `options` that say which run it is, not how it computes
_WHICH_RUN = frozenset({"release", "island_nodes", "oversubscription"})
# columns that switch something, and what they are without it
_CELLS_OFF = {"recompute": "none", "sequence_parallel": "0", "optimizer_offload": "0"}


@dataclass(frozen=True)
class Worth:
    """One option that rows state, against the same rows without it."""

    option: str  # as the rows write it; the largest change of the step first
    runs: int  # runs that state it and whose prediction it changes
    suites: int  # their suites
    step_change: float  # predicted step with it over the step without it, minus one: mean
    step_least: float  # the smallest change among these runs
    step_most: float  # the largest change among these runs
    memory_change: float  # likewise for predicted peak memory: mean
    mape_stated: float  # mean absolute error of the step as stated
    mape_left_out: float  # the same without the option


def worths(rows: list[Row], calibration: Calibration | None = None) -> list[Worth]:
    """Effect of every option that rows state: the ratio of predicted steps and peaks with and
    without it, and the errors of both. Without a word of `options` the stack's default holds,
    without a switch in a column that is off. The largest changes come first."""
    by_option: dict[str, list[_Stated]] = defaultdict(list)
    for row in rows:
        seconds = measured(row, "step_s")
        if seconds is None or row.get("outcome", "") == "oom":
            continue
        known = _scored(row, calibration)
        if known is None:
            continue
        stated = _both(known)
        for name, other in _without_each(row, known):
            without = _scored(other, calibration)
            if without is None:
                continue
            left = _both(without)
            if not np.allclose(stated, left, rtol=_CHANGED):
                by_option[name].append(_Stated(row["suite"], seconds, stated, left))
    lines = [_worth(name, runs) for name, runs in by_option.items() if len(runs) >= _FEWEST_RUNS]
    return sorted(lines, key=lambda line: -abs(line.step_change))


@dataclass(frozen=True)
class _Stated:
    """A run that states an option: (step in s, peak in bytes) with it and without it."""

    suite: str
    seconds: float
    stated: tuple[float, float]
    left: tuple[float, float]


def _without_each(row: Row, known: Scored) -> Iterator[tuple[str, Row]]:
    """The row without each of the options it states."""
    words = options_of(row)
    for key, value in words.items():
        if known.run.arguments[WORD + key].use == "read" and key not in _WHICH_RUN:
            rest = {name: word for name, word in words.items() if name != key}
            yield f"{key}={value}", with_options(row, rest)
    for name, off in _CELLS_OFF.items():
        if row.get(name, off) not in ("", off):
            yield f"{name}={row[name].partition(':')[0]}", {**row, name: off}


def _scored(row: Row, calibration: Calibration | None) -> Scored | None:
    try:
        return scored(row, calibration)
    except (PlanError, ValueError):
        return None


def _both(known: Scored) -> tuple[float, float]:
    out = known.estimates
    return float(out.time.seconds[0]), float(out.memory.peak[0])


def _worth(name: str, runs: list[_Stated]) -> Worth:
    steps = [run.stated[0] / run.left[0] - 1 for run in runs]
    peaks = [run.stated[1] / run.left[1] - 1 for run in runs]
    return Worth(
        option=name,
        runs=len(runs),
        suites=len({run.suite for run in runs}),
        step_change=float(np.mean(steps)),
        step_least=min(steps),
        step_most=max(steps),
        memory_change=float(np.mean(peaks)),
        mape_stated=errors([run.stated[0] / run.seconds - 1 for run in runs]).mape or 0.0,
        mape_left_out=errors([run.left[0] / run.seconds - 1 for run in runs]).mape or 0.0,
    )


def block(worths: Sequence[Worth]) -> Block:
    return Block(
        "What options are worth: runs that state one, against the same runs without it",
        text=[
            "without a word of `options` the stack's default holds; without recompute, sequence"
            " parallelism or offload the run has none; change: mean of predicted with over without"
        ],
        header=[
            *("option", ">runs", ">suites", ">step", ">least", ">most", ">memory"),
            *(">MAPE: stated", ">MAPE: without"),
        ],
        order="the largest change of the step first",
        drop=("least", "most", "suites"),
        rows=[
            [
                line.option,
                f"{line.runs:,}",
                str(line.suites),
                *(percent(x, sign=True) for x in (line.step_change, line.step_least)),
                *(percent(x, sign=True) for x in (line.step_most, line.memory_change)),
                percent(line.mape_stated),
                percent(line.mape_left_out),
            ]
            for line in worths
        ],
    )


if __name__ == "__main__":
    runs = named(__doc__)
    show(block(worths(runs.complete, runs.calibration)))
