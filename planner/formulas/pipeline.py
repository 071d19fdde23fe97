"""Layers per stage, the time of a pipeline whose last stage carries the LM head, and what can wait
in a backward pass."""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula


@formula(
    unit="s",
    equation="m slowest + idle",
    source=(
        "Narayanan et al. 2021, arXiv 2104.04473 section 2; idle time by schedule,"
        " planner/schedules"
    ),
)
def pipeline_s(slowest_s: Array, microbatches: Array, idle_s: Array) -> Array:
    """Time of m micro-batches: the slowest stage is busy except for what the schedule leaves idle
    around it."""
    return microbatches * slowest_s + idle_s


@formula(
    unit="s",
    equation=(
        "v m ((1-1/v) (min(send, half) - lo)+ + (1-1/(v p)) (send - max(lo, half))+) - (v p - 2)"
        " (send - lo)+, lo = min(f, b), half = (f + b)/2"
    ),
    source=(
        "own derivation: shortest period of interleaved 1F1B in which every chunk's input has"
        " arrived (longest cycle of its dependencies); against timed schedules,"
        " tests/test_schedules_timing.py"
    ),
)
def ring_stall_s(
    forward_s: Array,
    backward_s: Array,
    send_s: Array,
    *,
    stages: Array,
    chunks: Array,
    microbatches: Array,
) -> Array:
    """Time that ranks of an interleaved schedule wait in a step for what goes around all of them.

    forward_s, backward_s: of one chunk and micro-batch on the slowest rank, v chunks on each of p
    ranks. A micro-batch must be back for its next chunk when p forwards, and p backwards, have
    passed; send_s: mean over the p boundaries of the ring. The fill has waited for the first.
    """
    low, half = np.minimum(forward_s, backward_s), 0.5 * (forward_s + backward_s)
    each = (1 - 1 / chunks) * np.maximum(np.minimum(send_s, half) - low, 0.0) + (
        1 - 1 / (chunks * stages)
    ) * np.maximum(send_s - half, 0.0)
    filled = np.maximum(chunks * stages - 2, 0.0) * np.maximum(send_s - low, 0.0)
    return np.maximum(chunks * microbatches * each - filled, 0.0)


@formula(
    unit="s",
    equation="n 2/3 (send - (f + b)/2)+",
    source=(
        "own derivation: as ring_stall_s, the cycle of a forward to the next rank and a backward"
        " from it, in three periods"
    ),
)
def pair_stall_s(forward_s: Array, backward_s: Array, send_s: Array, pairs: Array) -> Array:
    """Time that two neighbours of an interleaved schedule wait in a step for the dearest boundary,
    which is between them; n pairs of a forward and a backward of a chunk on each."""
    return pairs * 2 / 3 * np.maximum(send_s - 0.5 * (forward_s + backward_s), 0.0)


@formula(
    unit="s",
    equation="1/2 of the backward time of the GEMMs",
    source=(
        "input and weight gradient of a GEMM have the same FLOP; Qi et al. 2023 (arXiv"
        " 2401.10241) table 1 and section 3"
    ),
)
def weight_gradient_s(products_backward_s: Array) -> Array:
    """The part of backward that no other stage waits for; attention, norms and activations have no
    weights to speak of."""
    return 0.5 * products_backward_s


@formula(
    unit="s",
    equation="(m + p - 1) t",
    source="a pipeline that only runs forward: m micro-batches through p stages; own derivation",
)
def forward_only_s(stage_s: Array, microbatches: Array, stages: Array) -> Array:
    """Time of a forward-only pipeline of m micro-batches, each t on the slowest of p stages."""
    return (microbatches + stages - 1) * stage_s
