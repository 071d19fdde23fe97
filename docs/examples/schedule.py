"""A pipeline schedule: 1F1B with eager warm-up, which hides sends for about twice the live
micro-batches.

Run from the repository root: python docs/examples/schedule.py
"""

import numpy as np

from planner.ledger import Array
from planner.schedules.base import Actions, Work, backward, forward, total_s, warm_then_alternate

CHUNKS = "one"
NEEDS = "one micro-batch or more"


def allows(p: Array, m: Array, v: Array) -> Array:
    """Any number of ranks and micro-batches."""
    return m >= 1


def actions(p: int, m: int, v: int = 1) -> Actions:
    """Rank i runs 2 (p - i - 1) forwards, then one forward and one backward in turn."""
    return [
        warm_then_alternate(
            min(m, 2 * (p - r - 1)),
            [forward(r, i) for i in range(m)],
            [backward(r, i) for i in range(m)],
        )
        for r in range(p)
    ]


def idle_s(fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """As 1F1B: the fill and the drain stay idle."""
    return total_s(fill)


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Stage i runs 2 (p - i) - 1 forward passes before its first backward pass."""
    return np.minimum(microbatches, 2 * (pp - stage) - 1)


if __name__ == "__main__":
    from planner import schedules
    from planner.schedules import checks, timing

    slow_sends = timing.Durations(send=0.3)
    for name, lists in (("1f1b", schedules.actions("1f1b", 4, 16)), ("1f1b-eager", actions(4, 16))):
        seconds = timing.timed(checks.checked(lists), slow_sends).makespan[0]
        print(f"{name:12} {seconds:.1f} s, live micro-batches per stage {checks.peak_live(lists)}")
