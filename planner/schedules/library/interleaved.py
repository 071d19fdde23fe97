"""Interleaved 1F1B: each rank holds v chunks of layers. Narayanan et al. 2021 (arXiv 2104.04473)
section 2.2."""

import numpy as np

from planner.ledger import Array
from planner.schedules.base import Actions, Work, backward, forward, total_s, warm_then_alternate

CHUNKS = "several"
NEEDS = "micro-batches that divide by pp"


def allows(p: Array, m: Array, v: Array) -> Array:
    """Micro-batches go in groups of p through all chunks of a rank."""
    return np.mod(m, p) == 0


def actions(p: int, m: int, v: int) -> Actions:
    """Groups of p micro-batches, each group through all chunks of a rank (figure 4); warm-up as in
    Megatron-LM."""
    out = []
    for r in range(p):
        order = [
            (k // p % v, k // (p * v) * p + k % p) for k in range(m * v)
        ]  # chunk of the rank, micro-batch
        forwards = [forward(chunk * p + r, i) for chunk, i in order]
        backwards = [backward((v - 1 - chunk) * p + r, i) for chunk, i in order]
        out.append(
            warm_then_alternate(min(m * v, 2 * (p - r - 1) + (v - 1) * p), forwards, backwards)
        )
    return out


def idle_s(fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """Fill and drain run in chunks, 1/v of the time: (p-1)(F + I + W) / v."""
    return total_s(fill) / v


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Warm-up of rank i is 2 (p - i - 1) + (v - 1) p chunks, and one more is in work (Megatron-LM
    schedules.py)."""
    return np.minimum(microbatches * vpp, 2 * (pp - stage - 1) + (vpp - 1) * pp + 1)
