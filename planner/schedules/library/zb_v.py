"""ZB-V: two chunks per rank in a V, no bubble within 1F1B's memory. Qi et al. 2023 (arXiv
2401.10241) section 6, 2405.15362."""

import numpy as np

from planner.ledger import Array
from planner.schedules.base import FORWARD, INPUT, WEIGHT, Work
from planner.schedules.lists import Lists, Rank, step, two_streams

CHUNKS = "two"
NEEDS = "one micro-batch or more"
SIMULATED = True
FREE_RUNNING = True
_F, _I, _W = map(
    step, (FORWARD, INPUT, WEIGHT)
)  # of the stage on the way down and of that on the way up


def allows(p: Array, m: Array, v: Array) -> Array:
    """Any number of micro-batches; below 2p - 1 the missing ones leave gaps."""
    return m >= 1


def lists(p: int, m: int, v: int = 2) -> Lists:
    """Rank r holds stages r and 2p - 1 - r."""
    return two_streams((Rank(_steps(p, m, r), (r, 2 * p - 1 - r)) for r in range(p)), m)


def _steps(p: int, m: int, r: int) -> list[int]:
    """Warm-up, steady state and drain as if there were 2p - 1 micro-batches; those beyond m are
    left out."""
    whole = max(2 * p - 1, m)
    of_up = [_F[1], _I[1], _W[1]]
    cycle = [_I[0], _W[0], *of_up]
    more = whole - (2 * p - r - 1)  # forwards of the stage on the way down, after the warm-up
    return [
        *[_F[0]] * (2 * (p - r) - 1),
        *[_F[1], _F[0]] * r,
        *of_up * (p - r),
        *[_F[0], *cycle] * more,
        *cycle * (whole - p - more),
        *[_I[0], _I[1]] * r,
        *[_I[0], _W[0]] * (p - r),
        *[_W[1]] * r,
        *[_W[0]] * r,
    ]


def idle_s(fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """None where F, I and W take equally long, (p-1)(I - W) for W <= F <= I; the simulation tells
    otherwise."""
    return np.maximum(fill.input_gradient - fill.weight_gradient, 0.0) + 0.0 * fill.forward


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """2p chunks on every rank, the memory of p micro-batches."""
    return np.minimum(2 * microbatches, 2 * pp) + 0 * stage
