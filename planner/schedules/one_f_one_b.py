"""1F1B (PipeDream-flush): one forward, one backward in the steady state. Narayanan et al. 2019, 2021 (arXiv 2104.04473)."""

import numpy as np

from planner.ledger import Array

NAME = "1f1b"


def bubble_frac(vpp: Array) -> Array:
    """The whole fill and drain, (p-1)(t_f + t_b) on uniform stages, stays idle."""
    return np.ones_like(np.asarray(vpp, float))


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Stage i holds min(m, p - i) micro-batches."""
    return np.minimum(microbatches, pp - stage)
