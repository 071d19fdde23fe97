"""ZB-V: two chunks per rank in a V, no bubble within 1F1B's memory. Qi et al. 2023 (arXiv
2401.10241) section 6, 2405.15362."""

import itertools

import numpy as np

from planner.ledger import Array
from planner.schedules.base import FORWARD, INPUT, WEIGHT, Action, Actions, Work

CHUNKS = "two"
NEEDS = "one micro-batch or more"
SIMULATED = True
FREE_RUNNING = True


def allows(p: Array, m: Array, v: Array) -> Array:
    """Any number of micro-batches; below 2p - 1 the missing ones leave gaps."""
    return m >= 1


def actions(p: int, m: int, v: int = 2) -> Actions:
    """Rank r holds stages r and 2p - 1 - r."""
    return [_rank(p, m, r) for r in range(p)]


def _rank(p: int, m: int, r: int) -> list[Action]:
    """Warm-up, steady state and drain as if there were 2p - 1 micro-batches; those beyond m are
    left out."""
    down, up, whole = r, 2 * p - 1 - r, max(2 * p - 1, m)
    of_up = [(kind, up) for kind in (FORWARD, INPUT, WEIGHT)]
    cycle = [(INPUT, down), (WEIGHT, down), *of_up]
    more = whole - (2 * p - r - 1)  # forwards of the stage on the way down, after the warm-up
    steps = [
        *[(FORWARD, down)] * (2 * (p - r) - 1),
        *[(FORWARD, up), (FORWARD, down)] * r,
        *of_up * (p - r),
        *[(FORWARD, down), *cycle] * more,
        *cycle * (whole - p - more),
        *[(INPUT, down), (INPUT, up)] * r,
        *[(INPUT, down), (WEIGHT, down)] * (p - r),
        *[(WEIGHT, up)] * r,
        *[(WEIGHT, down)] * r,
    ]
    numbers = {step: itertools.count() for step in set(steps)}
    each = ((*step, next(numbers[step])) for step in steps)
    return [Action(stage, kind, i) for kind, stage, i in each if i < m]


def idle_s(fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """None where F, I and W take equally long, (p-1)(I - W) for W <= F <= I; the simulation tells
    otherwise."""
    return np.maximum(fill.input_gradient - fill.weight_gradient, 0.0) + 0.0 * fill.forward


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """2p chunks on every rank, the memory of p micro-batches."""
    return np.minimum(2 * microbatches, 2 * pp) + 0 * stage
