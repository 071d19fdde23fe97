"""A pipeline schedule: 1F1B with eager warm-up, which hides sends for about twice the live micro-batches.

Run from the repository root: python docs/examples/schedule.py
"""

import numpy as np

from planner.ledger import Array
from planner.schedules import one_f_one_b

NAME = "1f1b-eager"


def bubble_frac(vpp: Array) -> Array:
    """As 1F1B: the fill and the drain stay idle."""
    return np.ones_like(np.asarray(vpp, float))


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Stage i runs 2 (p - i) - 1 forward passes before its first backward pass."""
    return np.minimum(microbatches, 2 * (pp - stage) - 1)


if __name__ == "__main__":
    stage, pp, vpp, m = np.arange(4.0), np.full(4, 4.0), np.ones(4), np.full(4, 16.0)
    for name, schedule in ((one_f_one_b.NAME, one_f_one_b.live_chunks), (NAME, live_chunks)):
        print(f"{name:12} live micro-batches per stage {schedule(stage, pp, vpp, m).astype(int).tolist()}")
