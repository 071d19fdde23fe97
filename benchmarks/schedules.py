"""How long it takes to build, check and time pipeline schedules, on one core.

    python benchmarks/schedules.py        # the best of 3

Targets: 16 ranks and 64 micro-batches for 10,000 rows of durations within 1 s; 64 ranks and 512
micro-batches for one row, lists, checks and dependencies included, within 0.5 s.
"""

from __future__ import annotations

import os
import time

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np

from planner import schedules
from planner.schedules import checks, timing

ROWS = 10_000
TIMES = 3


def many(name: str, v: int) -> float:
    """Seconds to time 10,000 rows, with the schedule compiled before."""
    program = schedules.program(name, 16, 64, v)
    forward, given, weight = np.random.default_rng(0).uniform(0.5, 2.0, (3, program.stages, ROWS))
    started = time.perf_counter()
    timing.timed(program, timing.Durations(forward, given, weight, send=0.1 * forward[:-1]))
    return time.perf_counter() - started


def single(name: str, v: int, check: bool) -> float:
    """Seconds from nothing to the makespan of one row."""
    started = time.perf_counter()
    lists = schedules.actions(name, 64, 512, v)
    program = checks.checked(lists) if check else timing.compiled(lists)
    timing.timed(program, timing.Durations(1.0, 1.2, 0.8, send=0.1))
    return time.perf_counter() - started


def main() -> None:
    print(
        f"{'schedule':14} {'vpp':>3} {'16 x 64, 10,000 rows':>22} {'64 x 512, one row':>18}"
        f" {'with all checks':>16}"
    )
    for name in schedules.BY_NAME:
        if name in ("zb-1p", "zb-2p"):
            continue  # made by a search over orders, at p = 64 a matter of seconds
        v = schedules.default_chunks(name)
        best = [
            min(run() for _ in range(TIMES))
            for run in (
                lambda n=name, c=v: many(n, c),
                lambda n=name, c=v: single(n, c, False),
                lambda n=name, c=v: single(n, c, True),
            )
        ]
        print(f"{name:14} {v:3} {best[0]:20.2f} s {best[1]:16.2f} s {best[2]:14.2f} s")


if __name__ == "__main__":
    main()
