"""DualPipe: two pipelines in opposite directions share the ranks. DeepSeek-V3 report (arXiv
2412.19437) section 3.2.1."""

import numpy as np

from planner.ledger import Array
from planner.schedules.base import Work
from planner.schedules.dual import steps
from planner.schedules.lists import Lists, Rank, two_streams

CHUNKS = "one"
NEEDS = "an even pp and an even number of micro-batches, 2 pp or more"
SIMULATED = True


def allows(p: Array, m: Array, v: Array) -> Array:
    """The two directions mirror each other, and each fills its half of the ranks."""
    return (np.mod(p, 2) == 0) & (np.mod(m, 2) == 0) & (m >= 2 * p)


def lists(p: int, m: int, v: int = 1) -> Lists:
    """Half of the micro-batches enter at rank 0, half at rank p - 1; rank r holds stages r and p -
    1 - r."""
    half = m // 2

    def rank(r: int) -> Rank:
        down, up = r < p // 2, min(r, p - 1 - r)
        stages, first = (r, p - 1 - r), (0, half)
        order = steps(p // 2, up, half)
        return Rank(order, stages, first) if down else Rank(order, stages[::-1], first[::-1])

    return two_streams(map(rank, range(p)), half)


def idle_s(fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """(p/2 - 1)(F&B + B - 3W) with B = I + W and F&B = F + B (table 2); exact for W <= F = I, and
    used for nothing else."""
    share = np.maximum(p / 2 - 1, 0.0) / np.maximum(p - 1.0, 1.0)
    return share * np.maximum(
        fill.forward + 2 * fill.input_gradient - fill.weight_gradient, fill.forward
    )


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """p + 1 micro-batches on every rank (table 2); the two directions keep two copies of the
    parameters."""
    return np.minimum(microbatches, pp + 1) + 0 * stage
