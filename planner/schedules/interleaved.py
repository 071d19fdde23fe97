"""Interleaved 1F1B: each rank holds v chunks of layers. Narayanan et al. 2021 (arXiv 2104.04473) section 2.2."""

import numpy as np

from planner.ledger import Array

NAME = "interleaved"


def bubble_frac(vpp: Array) -> Array:
    """Fill and drain run in chunks, 1/v of the time."""
    return 1.0 / np.asarray(vpp, float)


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Warm-up of rank i is 2 (p - i - 1) + (v - 1) p chunks, and one more is in work (Megatron-LM schedules.py)."""
    return np.minimum(microbatches * vpp, 2 * (pp - stage - 1) + (vpp - 1) * pp + 1)
