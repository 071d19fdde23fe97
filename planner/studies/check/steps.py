"""Steady steps, without those at the start, at checkpoints and at stalls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.ledger import Array
from planner.studies.documents.check import StepTimes
from planner.studies.logs.contents import Log, Step

_SETTLED = 0.10  # above the middle of the second half, from which a first step is warm-up
_LONGER = 0.05  # above the middle, from which a step after an event is its cost
_STALLED = 1.5  # times the middle, from which a step without a reason is an outlier
_SPREADS = 4.0  # robust standard deviations within which steps are alike
_NORMAL = 1.4826  # standard deviation over median deviation of a normal distribution
_TAIL = 0.1  # share of steps below `low`, and above `high`
_THIRDS = 3
_MOST_WARM_UP = 0.5  # share of the lines
INSIDE = "inside the band"


def verdict(seconds: float, low: float, high: float) -> str:
    """Whether a step is as predicted."""
    if low <= seconds <= high:
        return INSIDE
    return f"{'slower' if seconds > high else 'faster'} than the band"


@dataclass(frozen=True)
class Size:
    """Sizes that turn rates into times: of the recipe, else of the log. None: unknown."""

    tokens: float | None  # of one step of the job
    batch: float | None  # sequences of one step
    gpus: int | None


def seconds_of(step: Step, size: Size) -> float | None:
    """Seconds of one step, by what its line prints."""
    if step.seconds is not None:
        return step.seconds
    if size.tokens and step.tokens_per_s:
        return size.tokens / step.tokens_per_s
    if size.tokens and size.gpus and step.tokens_per_gpu:
        return size.tokens / (step.tokens_per_gpu * size.gpus)
    if size.batch and step.samples_per_s:
        return size.batch / step.samples_per_s
    return None


def step_times(log: Log, size: Size) -> StepTimes | None:
    """The middle and the spread of a log; None where no line tells a time."""
    timed = [(i, s) for i, step in enumerate(log.steps) if (s := seconds_of(step, size))]
    if not timed:
        return None
    lines, times = np.array([i for i, _ in timed]), np.array([s for _, s in timed])
    middle, spread = _robust(times[len(times) // 2 :])
    first = _warm_up(times, middle, spread)
    kinds = np.full(len(times), "steady", dtype="U10")
    kinds[:first] = "warm_up"
    kinds[first:][times[first:] > _STALLED * middle] = "stalled"
    for event in log.events:
        at = int(np.searchsorted(lines, event.at))
        longer = at < len(times) and times[at] > middle * (1 + _LONGER) + _SPREADS * spread
        if longer and at >= first:
            kinds[at] = event.kind
    steady = times[kinds == "steady"]
    if not len(steady):
        steady, kinds = times, np.full(len(times), "steady", dtype="U10")
    middle, spread = _robust(steady)
    third = max(len(steady) // _THIRDS, 1)
    drift = float(np.median(steady[-third:]) / np.median(steady[:third])) - 1
    longer_s = np.maximum(times[first:] - middle, 0.0)[kinds[first:] != "steady"].sum()
    loading = [step.loading_s for step in log.steps if step.loading_s is not None]
    count = {kind: int((kinds == kind).sum()) for kind in (*_KINDS, "steady")}
    return StepTimes(
        lines=len(log.steps),
        steady=count["steady"],
        warm_up=count["warm_up"],
        checkpoint=count["checkpoint"],
        evaluation=count["evaluation"],
        stalled=count["stalled"],
        seconds=middle,
        low=float(np.quantile(steady, _TAIL)),
        high=float(np.quantile(steady, 1 - _TAIL)),
        spread_frac=spread / middle,
        drift_frac=drift,
        lost_frac=float(longer_s / times[first:].sum()),
        loading_s=float(np.median(loading)) if loading else None,
        phases=_phases([log.steps[i] for i in lines[kinds == "steady"]]),
    )


def _phases(steady: Sequence[Step]) -> dict[str, float]:
    """The middle of each phase over the steps that have it, in the order of the program."""
    by_phase: dict[str, list[float]] = {}
    for step in steady:
        for name, seconds in step.phases:
            by_phase.setdefault(name, []).append(seconds)
    return {name: float(np.median(seconds)) for name, seconds in by_phase.items()}


_KINDS = ("warm_up", "checkpoint", "evaluation", "stalled")


def _robust(times: Array) -> tuple[float, float]:
    """Median, and spread by the median deviation from it."""
    middle = float(np.median(times))
    return middle, _NORMAL * float(np.median(np.abs(times - middle)))


def _warm_up(times: Array, middle: float, spread: float) -> int:
    """Steps before the first that is like the second half; 0 for a single line."""
    limit = middle * (1 + _SETTLED) + _SPREADS * spread
    most = int(len(times) * _MOST_WARM_UP)
    slow = times[:most] > limit
    return int(np.argmin(slow)) if len(slow) and not slow.all() else len(slow)
