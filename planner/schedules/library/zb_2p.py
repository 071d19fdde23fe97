"""ZB-2p: the automatic zero-bubble schedule within twice 1F1B's memory. Qi et al. 2023 (arXiv
2401.10241) section 3."""

import numpy as np

from planner.ledger import Array
from planner.schedules import automatic
from planner.schedules.automatic import Seconds
from planner.schedules.base import Actions, Work
from planner.schedules.library import zb_h1

CHUNKS = "one"
NEEDS = "one micro-batch or more"
FREE_RUNNING = True


def allows(p: Array, m: Array, v: Array) -> Array:
    """Any number of ranks and micro-batches."""
    return m >= 1


def actions(p: int, m: int, v: int = 1) -> Actions:
    """The shortest found for forward, input and weight gradient of one second each."""
    unit = (1.0,) * p
    return actions_for(p, m, unit, unit, unit, 0.0)


def actions_for(p: int, m: int, f: Seconds, i: Seconds, w: Seconds, send: float) -> Actions:
    """The shortest found for these seconds of every stage."""
    return automatic.cached(p, m, 2 * p, f, i, w, send)


def idle_s(fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """Zero if I takes at most as long as F (section 3.2: below 1 % in most settings), else (p-1)(I
    - F), since 2p forwards are over before the first I arrives. With fewer than 2p - 1
    micro-batches as in ZB-H1."""
    full = np.maximum(fill.input_gradient - fill.forward, 0.0)
    return np.where(m >= 2 * p - 1, full, zb_h1.idle_s(fill, slow, p, m, v))


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Every stage holds up to 2p - 1 micro-batches."""
    return np.minimum(microbatches, 2 * pp - 1) + 0 * stage
