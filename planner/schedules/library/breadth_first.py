"""Breadth-first, looped: all micro-batches through a chunk before the next chunk. Lamy-Poirier 2022
(arXiv 2211.05953)."""

from planner.ledger import Array
from planner.schedules.base import Actions, Work, backward, forward, total_s

CHUNKS = "several"
NEEDS = "as many micro-batches as pp, or more"
DOMINATED = True


def allows(p: Array, m: Array, v: Array) -> Array:
    """With fewer micro-batches than ranks every chunk waits for the one before."""
    return m >= p


def actions(p: int, m: int, v: int) -> Actions:
    """Forwards chunk by chunk; backwards from the last chunk and the last micro-batch on."""
    return [
        [forward(chunk * p + r, i) for chunk in range(v) for i in range(m)]
        + [backward(chunk * p + r, i) for chunk in reversed(range(v)) for i in reversed(range(m))]
        for r in range(p)
    ]


def idle_s(fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """As interleaved: (p-1)(F + I + W) / v."""
    return total_s(fill) / v


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Every chunk of every micro-batch."""
    return microbatches * vpp + 0 * stage
