"""ZB-H2: more forwards in the warm-up, no bubble for twice 1F1B's memory. Qi et al. 2023 (arXiv
2401.10241)."""

import numpy as np

from planner.ledger import Array
from planner.schedules.base import Actions, Work
from planner.schedules.split import split_rank

CHUNKS = "one"
NEEDS = "2 pp - 1 micro-batches or more"
FREE_RUNNING = True


def allows(p: Array, m: Array, v: Array) -> Array:
    """The warm-up of the first rank needs 2p - 1 micro-batches."""
    return m >= 2 * p - 1


def actions(p: int, m: int, v: int = 1) -> Actions:
    """2 (p - i) - 1 forwards up to the first backward; rank i is 2 i weight gradients behind
    (figure 2, bottom)."""
    return [split_rank(r, m, warm=2 * (p - r - 1), behind=2 * r) for r in range(p)]


def idle_s(fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """(p-1)(F + I - 2W) on uniform stages (table 1), at least (p-1)(I - F), never below zero."""
    ahead = fill.input_gradient - fill.forward
    filled = 2 * (p - 1.0) * slow.weight_gradient
    return np.maximum(np.maximum(fill.forward + fill.input_gradient - filled, ahead), 0.0)


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Every stage holds up to 2p - 1 micro-batches (table 1)."""
    return np.minimum(microbatches, 2 * pp - 1) + 0 * stage
