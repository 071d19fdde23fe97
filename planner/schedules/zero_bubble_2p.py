"""ZB-2p: the automatic zero-bubble schedule within twice 1F1B's memory. Qi et al. 2023 (arXiv 2401.10241) section 3."""

import numpy as np

from planner.ledger import Array
from planner.schedules import automatic, zb_h1
from planner.schedules.base import Actions, Work

NAME = "zb-2p"
CHUNKS = "one"
NEEDS = "one micro-batch or more"
FREE_RUNNING = True


def allows(p: Array, m: Array, v: Array) -> Array:
    """Any number of ranks and micro-batches."""
    return np.asarray(m) >= 1


def actions(p: int, m: int, v: int = 1) -> Actions:
    """The shortest found for forward, input and weight gradient of one second each."""
    one = (1.0,) * p
    return automatic.cached(p, m, 2 * p, one, one, one, 0.0)


def idle_s(fill: Work, p: Array, m: Array, v: Array) -> Array:
    """None left with 2p micro-batches or more (section 3.2: below 1 % in most settings); with fewer, as ZB-H1."""
    few = zb_h1.idle_s(fill, p, m, v)
    return np.where(np.asarray(m) >= 2 * np.asarray(p) - 1, 0.0 * few, few)


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Every stage holds up to 2p - 1 micro-batches."""
    return np.minimum(microbatches, 2 * pp - 1) + 0 * stage
