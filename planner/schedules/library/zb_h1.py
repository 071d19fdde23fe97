"""ZB-H1: backwards are split and weight gradients fill the drain, within 1F1B's memory. Qi et al.
2023 (arXiv 2401.10241)."""

import numpy as np

from planner.ledger import Array
from planner.schedules.base import Actions, Work
from planner.schedules.split import split_rank

CHUNKS = "one"
NEEDS = "one micro-batch or more"
# no rank waits for the others between steps: the optimizer is validated afterwards (section 4)
FREE_RUNNING = True


def allows(p: Array, m: Array, v: Array) -> Array:
    """Any number of ranks and micro-batches."""
    return m >= 1


def actions(p: int, m: int, v: int = 1) -> Actions:
    """1F1B with input gradients; rank i is i weight gradients behind (figure 2, top)."""
    return [split_rank(r, m, warm=p - r - 1, behind=r) for r in range(p)]


def idle_s(fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """(p-1)(F + I - W) on uniform stages (table 1), (p-1) I where W is longer than F; m < p leave
    only m - 1 W to fill with."""
    filled = (
        np.minimum(1.0 * m, p) - 1
    )  # weight gradients of the slowest rank that run during the drain
    return np.maximum(
        fill.forward
        + fill.input_gradient
        - filled * np.minimum(slow.weight_gradient, slow.forward),
        0.0,
    )


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Every stage holds up to p micro-batches: p - i in flight and i whose weight gradient is to
    come (table 1)."""
    return np.minimum(microbatches, pp) + 0 * stage
