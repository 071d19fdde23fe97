"""ZB-1p: zero bubble within the activation memory of 1F1B. Qi et al. 2023 (arXiv 2401.10241)."""

import numpy as np

from planner.ledger import Array

NAME = "zb-1p"


def bubble_frac(vpp: Array) -> Array:
    """About a third of 1F1B's bubble, (p-1)(t_F + t_B - t_W) with equal parts (table 1)."""
    return np.full_like(np.asarray(vpp, float), 1 / 3)


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Every stage holds up to p micro-batches: weight gradients are delayed into the drain."""
    return np.minimum(microbatches, pp) + 0 * stage
