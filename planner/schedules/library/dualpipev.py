"""DualPipeV: DualPipe cut in half, one pipeline that turns round at the last rank.
deepseek-ai/DualPipe (2025)."""

import numpy as np

from planner.ledger import Array
from planner.schedules.base import Work
from planner.schedules.dual import steps
from planner.schedules.lists import Lists, Rank, two_streams

CHUNKS = "two"
NEEDS = "2 pp micro-batches or more"
SIMULATED = True


def allows(p: Array, m: Array, v: Array) -> Array:
    """Both chunks of every rank must fill."""
    return m >= 2 * p


def lists(p: int, m: int, v: int = 2) -> Lists:
    """Rank r holds stages r and 2p - 1 - r; each micro-batch goes down the ranks and up again."""
    return two_streams((Rank(steps(p, r, m), (r, 2 * p - 1 - r)) for r in range(p)), m)


def idle_s(fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """(p - 1)(F&B + B - 3W) of chunks, half of a rank's work each; exact for W <= F = I, and used
    for nothing else."""
    return 0.5 * np.maximum(
        fill.forward + 2 * fill.input_gradient - fill.weight_gradient, fill.forward
    )


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """2p + 1 chunks on every rank, two of which make a micro-batch."""
    return np.minimum(2 * microbatches, 2 * pp + 1) + 0 * stage
