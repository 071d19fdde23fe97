"""Detection of quiet periods for measurements: a probe of known work before and after each sample,
and the CPU use of other programs.

A virtual machine shares cores with neighbours that /proc/stat does not show: the same GEMM runs at
half its speed for seconds, and slightly faster while the neighbours are idle. The reference is the
usual speed of the machine, not its best moment, since training is sustained. A sample counts if the
probes around it run near the reference, and is scaled to it.

A probe measures the speed of a core, not every delay of a sample (a page written back, a rank that
lost its core). So samples count only while other programs leave the cores idle (others.py), and
repeats of one piece of work at several moments must agree (agreement).
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, floor, log, sqrt
from statistics import median
from typing import NamedTuple, TypeVar

import numpy as np

from planner.calibrate.others import MOST_OTHERS, Crowd
from planner.units import percent, span

T = TypeVar("T")
SLACK = 1.08  # a probe this much slower or faster than the usual one is a disturbed moment
# repeats of one piece of work that lie within this factor of their middle agree: probes may differ
# by SLACK to both sides, and the work by as much again where it moves memory; a choice
AGREE = 1.15
# what repeats may leave open of their middle, as a share of it; a choice
_MOST_OPEN = 0.10
_NORMAL = 1.4826  # standard deviation over median absolute deviation, of normal noise
_OF_MEDIAN = 1.2533  # standard error of a median / standard error of a mean, the root of pi / 2
_FAR = 3.0  # standard deviations beyond which a repeat is an outlier; a choice
_OTHER_SPEED = 0.25  # share of repeats above which those on one side of a gap are a speed; a choice
_MEDIAN = 0.5
_FEWEST = 2  # repeats that can agree
_LEAST_S = 1e-15  # below any time that is measured: a divisor that is not zero
_PAUSE_S = 0.02  # between probes while waiting
# of the work in a probe, of which the faster counts: the first may find its operands in memory, not
# in a cache
_RUNS = 2
_OFTEN = 50  # probes after which the usual one is looked for again
_WARM_UP = 20  # probes before the first sample


@dataclass(frozen=True)
class Sample:
    """One timed piece of work, and the probes before and after it, in seconds."""

    seconds: float
    before_s: float
    after_s: float
    others: float = 0.0  # share of the cores that other programs had in its visit

    @property
    def probe_s(self) -> float:
        """The slower of the probes, which decides whether the sample is quiet."""
        return max(self.before_s, self.after_s)

    @property
    def mean_s(self) -> float:
        """Reference by which a disturbed sample is scaled."""
        return (self.before_s + self.after_s) / 2


@dataclass(frozen=True)
class Value:
    """The value of samples: seconds on the undisturbed machine."""

    seconds: float
    spread: float  # (largest - smallest) / middle of the samples that count
    kept: int  # samples beside usual probes that agree with each other
    tried: int
    quiet: bool
    why: str = ""  # it is not quiet


def usual_probe_s(probes: Sequence[float]) -> float:
    """Usual probe time of the machine: the middle of the band, SLACK to both sides, that holds most
    probes.

    The fastest of several such bands. Needs at least one probe.
    """
    ordered = sorted(probes)
    ends = [bisect_right(ordered, SLACK**2 * probe) for probe in ordered]
    start = max(range(len(ordered)), key=lambda i: (ends[i] - i, -i))
    return median(ordered[start : ends[start]])


def is_usual(probe_s: float, usual_s: float) -> bool:
    """Whether a probe runs near the reference."""
    return usual_s / SLACK <= probe_s <= SLACK * usual_s


def _near(samples: Sequence[Sample], reference_s: float, share: float) -> list[float]:
    """Samples taken at reference probe speed without contention, scaled to that speed and sorted.
    share below a half: only the fastest, so that their median is this quantile."""
    uncontended = (s for s in samples if s.others <= MOST_OTHERS)
    near = sorted(
        _scaled([s for s in uncontended if is_usual(s.probe_s, reference_s)], reference_s)
    )
    return near[: max(2, ceil(2 * share * len(near)))]


def _scaled(samples: Sequence[Sample], reference_s: float) -> list[float]:
    return [s.seconds * reference_s / s.mean_s for s in samples]


def _reach(repeats: Sequence[float]) -> tuple[float, float]:
    """Middle of repeats, and the standard deviation of their logarithms, from the median absolute
    deviation, which outliers do not widen."""
    middle = median(repeats)
    away = median(abs(log(max(x, _LEAST_S) / max(middle, _LEAST_S))) for x in repeats)
    return middle, _NORMAL * away


def _agreeing(repeats: Sequence[float]) -> list[float]:
    """Repeats that differ from their middle no more than by their own noise."""
    middle, noise = _reach(repeats)
    factor = max(AGREE, exp(_FAR * noise))
    return [x for x in repeats if middle / factor <= x <= factor * middle]


def agreement(repeats: Sequence[float], steady: bool = True) -> str:
    """Why repeats of one piece of work (s, fastest first) cannot be used as a measurement; empty
    where they can.

    Their median must be known well, and their times must have one mode. None of steady work may be
    much faster than their noise explains: whatever disturbs work makes it slower, so that one fast
    repeat shows the others to be disturbed. A slow one among many that agree is left out and spoils
    nothing.
    """
    if len(repeats) < _FEWEST:
        return "fewer than two samples of quiet moments"
    between = span(repeats[0], repeats[-1], "s")
    middle, noise = _reach(repeats)
    if _two_speeds(repeats):
        return f"{len(repeats)} repeats have two speeds: {between}"
    if _OF_MEDIAN * noise / sqrt(len(repeats)) > _MOST_OPEN:
        return f"{len(repeats)} repeats disagree: {between}"
    if steady and repeats[0] < middle / max(AGREE**2, exp(_FAR * noise)):
        return f"one repeat is much faster than the others: {between}"
    return ""


def _crowded(samples: Sequence[Sample]) -> str:
    """Warning if other processes used the cores during all samples but one; else empty."""
    loads = sorted(s.others for s in samples)
    if len(loads) < _FEWEST or loads[1] <= MOST_OTHERS:
        return ""
    return f"other programs had {percent(median(loads))} of the cores"


def _two_speeds(repeats: Sequence[float]) -> bool:
    """Whether the repeats have two modes: a gap wider than the spread on either side, with more
    than a quarter of the repeats on each."""
    logs = [log(max(x, _LEAST_S)) for x in repeats]
    least = floor(_OTHER_SPEED * len(logs)) + 1
    for i in range(least, len(logs) - least + 1):
        gap = logs[i] - logs[i - 1]
        if gap > log(AGREE) and gap > max(logs[i - 1] - logs[0], logs[-1] - logs[i]):
            return True
    return False


def agreed(samples: Sequence[Sample], reference_s: float, share: float = _MEDIAN) -> int:
    """Number of samples of quiet moments that agree with each other; 0 where they do not agree."""
    repeats = _near(samples, reference_s, share)
    return 0 if agreement(repeats, share >= _MEDIAN) else len(_agreeing(repeats))


def value_of(samples: Sequence[Sample], reference_s: float, share: float = _MEDIAN) -> Value:
    """Median (or a lower quantile: share) of samples near the reference speed that agree with each
    other, scaled to that speed.

    With fewer than two such samples, or if repeats disagree, it is taken over all samples and
    marked as not quiet.

    reference_s: the usual probe. A verification uses the probe of its calibration, so that a
    machine whose clock has changed since is compared at one speed. Steps and GEMMs follow the
    probe: over 1.17 of its range a step took 1.17 times as long.
    """
    repeats = _near(samples, reference_s, share)
    why = _crowded(samples) or agreement(repeats, share >= _MEDIAN)
    counted = _scaled(samples, reference_s) if why else _agreeing(repeats)
    middle = float(np.quantile(counted, share)) if why else median(counted)
    return Value(
        middle,
        (max(counted) - min(counted)) / middle if middle > 0 else 0.0,
        0 if why else len(counted),
        len(samples),
        not why,
        why,
    )


def moments(visits: Sequence[Sequence[Sample]], reference_s: float) -> list[float]:
    """Middle of the samples of each visit, scaled to the reference speed, disturbed or not."""
    return [median(_scaled(samples, reference_s)) for samples in visits if samples]


class _Spent(NamedTuple):
    """Time of the clock, and of the CPU that this process had."""

    wall_s: float
    cpu_s: float


def _clocked(work: Callable[[], T]) -> tuple[T, _Spent]:
    """The result of work, and the time it took."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    result = work()
    return result, _Spent(time.perf_counter() - wall_s, time.process_time() - cpu_s)


class Probe:
    """Tells how disturbed a moment is from work of known size. `work` runs it once and waits for
    its end.

    agree takes the largest of a number over the ranks that measure together, so that all take the
    same decisions. one_thread: the work runs on one thread of the CPU, so that its CPU time leaves
    out when another process had the core. crowd: what others have of the cores.
    """

    def __init__(
        self,
        work: Callable[[], object],
        agree: Callable[[float], float] = lambda number: number,
        one_thread: bool = False,
        crowd: Crowd | None = None,
    ) -> None:
        self.work, self.agree, self.one_thread = work, agree, one_thread
        self.crowd = crowd
        self.seen: list[float] = []
        self.usual_s = float("inf")
        self.tried = self.disturbed = 0
        for _ in range(_WARM_UP):
            self.look()
        self.tried = self.disturbed = 0

    def look(self) -> float:
        """Run the probe: its seconds on the slowest rank."""
        seconds = self.agree(min(self._once() for _ in range(_RUNS)))
        self.seen.append(seconds)
        if len(self.seen) <= _OFTEN or len(self.seen) % _OFTEN == 0:
            self.usual_s = usual_probe_s(self.seen)
        self.tried += 1
        self.disturbed += seconds > SLACK * self.usual_s
        return seconds

    def _once(self) -> float:
        _, spent = _clocked(self.work)
        return min(spent.wall_s, spent.cpu_s) if self.one_thread else spent.wall_s

    def quiet(self, probe_s: float) -> bool:
        return is_usual(probe_s, self.usual_s)

    @property
    def disturbed_frac(self) -> float:
        return self.disturbed / max(self.tried, 1)

    def samples(
        self,
        timed: Callable[[], float],
        *,
        want: int,
        wait_s: float,
        most_s: float,
        busy: bool = False,
    ) -> list[Sample]:
        """Up to `want` quiet samples of `timed`, which returns seconds; waits a little for quiet,
        ends after most_s.

        busy: the work never waits; of one thread, CPU time is then what it takes where no other
        process has the core. Every decision is agreed on: ranks that measure together take the same
        path.
        """
        samples: list[Sample] = []
        start_s = time.perf_counter()
        before = self.look()
        while not self.quiet(before) and self.agree(time.perf_counter() - start_s) < wait_s:
            time.sleep(_PAUSE_S)
            before = self.look()
        while sum(self.quiet(s.probe_s) for s in samples) < want:
            seconds, spent = _clocked(timed)
            if busy and self.one_thread:
                seconds *= min(1.0, spent.cpu_s / spent.wall_s)
            slowest = self.agree(seconds)
            after = self.look()
            samples.append(Sample(slowest, before, after))
            before = after
            if self.agree(time.perf_counter() - start_s) > most_s:
                break
        crowd = self.crowd.share() if self.crowd else 0.0
        if busy and self.one_thread:  # wall time equals CPU time
            return samples
        return [replace(sample, others=crowd) for sample in samples]
