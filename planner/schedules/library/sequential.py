"""Plain model parallelism: one micro-batch at a time, all ranks idle but one. The baseline of Huang
et al. 2018, figure 2b."""

import numpy as np

from planner.ledger import Array
from planner.schedules.base import Actions, Work, backward, forward, total_s

CHUNKS = "one"
NEEDS = "one micro-batch or more"
DOMINATED = True


def allows(p: Array, m: Array, v: Array) -> Array:
    """Any number of ranks and micro-batches."""
    return m >= 1


def actions(p: int, m: int, v: int = 1) -> Actions:
    """Forward through all stages and back before the next micro-batch starts."""
    return [
        [action for i in range(m) for action in (forward(r, i), backward(r, i))] for r in range(p)
    ]


def idle_s(fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """A fill and a drain for every micro-batch: m (p-1)(F + I + W) on uniform stages."""
    return m * total_s(fill)


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """One micro-batch."""
    return np.minimum(microbatches, 1.0) + 0 * stage
