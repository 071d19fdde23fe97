"""When a machine is quiet enough to measure: a probe of known work before and after each sample, and who else uses the CPUs.

A virtual machine shares cores with neighbours that /proc/stat does not show: the same product runs at half its speed for
seconds. A sample counts when the probes around it run near the best speed seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

SLACK = 1.08  # a probe this much slower than the best one is a disturbed moment
_PAUSE_S = 0.02  # between probes while waiting
_LUCKY = 50  # one probe in so many may be faster than the machine is
_WARM_UP = 20  # probes before the first sample


def _busy_s() -> float:
    """CPU seconds of the whole machine since it started, idle and waiting time left out; 0 where /proc is missing."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(x) for x in file.readline().split()[1:]]
    except (OSError, ValueError):
        return 0.0
    return (sum(ticks[:3]) + sum(ticks[5:8])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Others:
    """CPU seconds per second that processes outside this one and its children use."""

    started: float = field(default_factory=time.perf_counter)
    busy: float = field(default_factory=_busy_s)
    own: float = field(default_factory=lambda: sum(os.times()[:4]))

    def share(self) -> float:
        wall = time.perf_counter() - self.started
        used = _busy_s() - self.busy - (sum(os.times()[:4]) - self.own)
        return max(0.0, used / wall) if wall > 0.05 else 0.0


@dataclass(frozen=True)
class Sample:
    """One timed piece of work, and the probes before and after it, in seconds."""

    seconds: float
    before_s: float
    after_s: float

    @property
    def probe_s(self) -> float:
        """The slower of the probes, which decides whether the sample is quiet."""
        return max(self.before_s, self.after_s)

    @property
    def mean_s(self) -> float:
        """What a disturbed sample is scaled by."""
        return (self.before_s + self.after_s) / 2


@dataclass(frozen=True)
class Value:
    """What samples say: seconds of the undisturbed machine."""

    seconds: float
    spread: float  # (largest - smallest) / middle of the quiet samples
    kept: int
    tried: int
    quiet: bool


def best_probe_s(probes: Sequence[float]) -> float:
    """The probe of an undisturbed machine: near the fastest, without the lucky ones."""
    return quantiles(probes, n=_LUCKY)[0] if len(probes) >= _LUCKY else min(probes)


def value_of(samples: Sequence[Sample], reference_s: float) -> Value:
    """Median of the samples at the reference speed; without two of them, of all samples scaled to it, marked as not quiet.

    reference_s: the probe of the undisturbed machine. A verification takes that of its calibration, so that a machine whose clock
    has changed since is compared at one speed.
    """
    kept = [s.seconds for s in samples if reference_s / SLACK <= s.probe_s <= SLACK * reference_s]
    if len(kept) >= 2:
        middle = median(kept)
        return Value(middle, (max(kept) - min(kept)) / middle if middle > 0 else 0.0, len(kept), len(samples), True)
    scaled = [s.seconds * reference_s / s.mean_s for s in samples]
    middle = median(scaled)
    return Value(middle, (max(scaled) - min(scaled)) / middle if middle > 0 else 0.0, len(kept), len(samples), False)


class Probe:
    """Tells how disturbed a moment is from work of known size. `work` runs it once and waits for its end.

    agree takes the largest of a number over the ranks that measure together, so that all take the same decisions. one_thread: the
    work runs on one thread of the CPU, so that its CPU time leaves out when another process had the core.
    """

    def __init__(
        self, work: Callable[[], None], agree: Callable[[float], float] = lambda number: number, one_thread: bool = False
    ) -> None:
        self.work, self.agree, self.one_thread = work, agree, one_thread
        self.seen: list[float] = []
        self.best_s, self.tried, self.disturbed = float("inf"), 0, 0
        for _ in range(_WARM_UP):
            self.look()
        self.tried = self.disturbed = 0

    def look(self) -> float:
        """Run the probe once: its seconds on the slowest rank."""
        wall, cpu = time.perf_counter(), time.process_time()
        self.work()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        seconds = self.agree(min(wall, cpu) if self.one_thread else wall)
        self.seen.append(seconds)
        if len(self.seen) <= _LUCKY or len(self.seen) % _LUCKY == 0 or seconds < self.best_s:
            self.best_s = best_probe_s(self.seen)
        self.tried += 1
        self.disturbed += seconds > SLACK * self.best_s
        return seconds

    def quiet(self, probe_s: float) -> bool:
        return probe_s <= SLACK * self.best_s

    @property
    def disturbed_frac(self) -> float:
        return self.disturbed / max(self.tried, 1)

    def samples(self, timed: Callable[[], float], *, want: int, wait_s: float, most_s: float, busy: bool = False) -> list[Sample]:
        """Up to `want` quiet samples of `timed`, which returns seconds; waits a little for quiet, ends after most_s.

        busy: the work never waits; of one thread, CPU time is then what it takes where no other process has the core.
        Every decision is agreed on: ranks that measure together take the same path.
        """
        found: list[Sample] = []
        start, before = time.perf_counter(), self.look()
        while not self.quiet(before) and self.agree(time.perf_counter() - start) < wait_s:
            time.sleep(_PAUSE_S)
            before = self.look()
        while sum(self.quiet(s.probe_s) for s in found) < want:
            wall, cpu = time.perf_counter(), time.process_time()
            seconds = timed()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            own = min(1.0, cpu / wall) if busy and self.one_thread else 1.0
            seconds, after = self.agree(seconds * own), self.look()
            found.append(Sample(seconds, before, after))
            before = after
            if self.agree(time.perf_counter() - start) > most_s:
                break
        return found
