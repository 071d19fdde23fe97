"""GPipe: all forwards, then all backwards. Huang et al. 2018 (arXiv 1811.06965)."""

from planner.ledger import Array
from planner.schedules.base import Actions, Work, backward, forward, total_s

CHUNKS = "one"
NEEDS = "one micro-batch or more"
DOMINATED = True


def allows(p: Array, m: Array, v: Array) -> Array:
    """Any number of ranks and micro-batches."""
    return m >= 1


def actions(p: int, m: int, v: int = 1) -> Actions:
    """All forwards of a rank, then all its backwards, in the same order."""
    return [
        [forward(r, i) for i in range(m)] + [backward(r, i) for i in range(m)] for r in range(p)
    ]


def idle_s(fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """As 1F1B; only the memory differs."""
    return total_s(fill)


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Every stage holds all micro-batches."""
    return microbatches + 0 * stage
