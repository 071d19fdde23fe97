"""1F1B (PipeDream-flush): one forward, one backward in the steady state. Narayanan et al. 2019,
2021 (arXiv 2104.04473)."""

import numpy as np

from planner.ledger import Array
from planner.schedules.base import Actions, Work, backward, forward, total_s, warm_then_alternate

CHUNKS = "one"
NEEDS = "one micro-batch or more"


def allows(p: Array, m: Array, v: Array) -> Array:
    """Any number of ranks and micro-batches."""
    return m >= 1


def actions(p: int, m: int, v: int = 1) -> Actions:
    """Rank i runs p - i - 1 forwards, then one forward and one backward in turn."""
    return [
        warm_then_alternate(
            min(m, p - r - 1), [forward(r, i) for i in range(m)], [backward(r, i) for i in range(m)]
        )
        for r in range(p)
    ]


def idle_s(fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """The whole fill and drain, (p-1)(F + I + W) on uniform stages, stays idle."""
    return total_s(fill)


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Stage i holds min(m, p - i) micro-batches."""
    return np.minimum(microbatches, pp - stage)
