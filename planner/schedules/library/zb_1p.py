"""ZB-1p: the automatic zero-bubble schedule within 1F1B's memory. Qi et al. 2023 (arXiv 2401.10241)
section 3."""

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
    return automatic.cached(p, m, p, f, i, w, send)


def idle_s(fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """As ZB-H1: (p-1)(F + I - W); the paper's own search finds no shorter one in this memory (table
    5)."""
    return zb_h1.idle_s(fill, slow, p, m, v)


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Every stage holds up to p micro-batches: weight gradients are delayed into the drain."""
    return np.minimum(microbatches, pp) + 0 * stage
