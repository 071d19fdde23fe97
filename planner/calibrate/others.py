"""CPU time that other programs take on the measured cores.

A probe on one thread measures the speed of a core and not contention: it counts CPU time, as
kernels on one thread do. Ranks that wait for each other are sensitive to contention: if one loses
its core for a time slice, all wait. So the busy time of the cores is read from the system, and the
ranks' own share is subtracted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

# seconds over which the system's count, of 10 ms ticks, says something; a choice
_LEAST_S = 0.5
# of the cores that ranks compute on, what others may have beyond the cores that are left free: a
# step of ranks that wait for each other is longer by as much or more, and a probe's slack is 8 %;
# a choice
MOST_OTHERS = 0.05
_LEFT_IDLE = (3, 4)  # columns of /proc/stat after the CPU's name: idle, and waiting for a disk
_GUESTS = 8  # columns from here on are counted in the first two already


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def busy_s(stat: str, cores: list[int]) -> float:
    """CPU seconds of some cores since the machine started, by its /proc/stat: idle time left out,
    what a hypervisor took for others counted."""
    ticks = 0
    for line in stat.splitlines():
        name, *columns = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            counted = enumerate(columns[:_GUESTS])
            ticks += sum(int(n) for i, n in counted if i not in _LEFT_IDLE)
    return ticks / os.sysconf("SC_CLK_TCK")


def _busy_s() -> float:
    """CPU seconds so far of the cores that this process may use; 0 where /proc is missing."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return busy_s(file.read(), cores())
    except (OSError, ValueError):
        return 0.0


def _own_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


class Others:
    """CPU seconds per second that processes outside this one and its children use.

    of_node: sums a number over the ranks of this machine.
    """

    def __init__(self, of_node: Callable[[float], float] = lambda number: number) -> None:
        self.of_node = of_node
        self.started, self.busy, self.own = time.perf_counter(), _busy_s(), _own_s()

    def share(self) -> float:
        wall = time.perf_counter() - self.started
        used = _busy_s() - self.busy - self.of_node(_own_s() - self.own)
        return max(0.0, used / wall)


class Crowd:
    """Share of the cores of `ranks` ranks with `threads` threads each that other programs use,
    beyond what free cores absorb. Read after every visit; covers about the last half second.

    agree: maximum of a number over all ranks; of_node: sum over the ranks of this machine. All
    ranks call together. ranks 0: a GPU is measured, which is not shared.
    """

    def __init__(
        self,
        ranks: int,
        threads: int,
        agree: Callable[[float], float] = lambda number: number,
        of_node: Callable[[float], float] = lambda number: number,
    ) -> None:
        self.used, self.agree, self.of_node = ranks * threads, agree, of_node
        self.since = Others(of_node)
        self.found = 0.0

    def share(self) -> float:
        if not self.used:
            return 0.0
        if self.agree(time.perf_counter() - self.since.started) >= _LEAST_S:
            free = max(len(cores()) - self.used, 0)
            self.found = self.agree(max(self.since.share() - free, 0.0) / self.used)
            self.since = Others(self.of_node)
        return self.found
