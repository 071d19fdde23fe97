"""ZB-2p: no bubble for twice the activation memory of 1F1B. Qi et al. 2023 (arXiv 2401.10241)."""

import numpy as np

from planner.ledger import Array

NAME = "zb-2p"


def bubble_frac(vpp: Array) -> Array:
    """None left on uniform stages (table 1)."""
    return np.zeros_like(np.asarray(vpp, float))


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Every stage holds up to 2p - 1 micro-batches."""
    return np.minimum(microbatches, 2 * pp - 1) + 0 * stage
