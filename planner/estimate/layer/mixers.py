"""Seconds of kernels that mix tokens otherwise than dense softmax attention."""

from __future__ import annotations

import numpy as np

from planner.estimate.layer.shape import BothWays
from planner.estimate.machine import Machine
from planner.estimate.machine.mixers import (
    CHOICE_PASSES,
    SHORT_CONV,
    SPARSE_ATTENTION,
    SPARSE_CHOICE,
    SPARSE_INDEX,
    chain,
    share_of,
)
from planner.formulas import kernels
from planner.ledger import Array

_SCORE_BYTES = 4.0  # of an indexer, in fp32
# five products backward for two forward, as flash attention has; two for one of the indexer
_SPARSE_BACKWARD, _INDEX_BACKWARD = 2.5, 2.0
# backward reads input, weight's input and the output's gradient, and writes the input's gradient
_CONV_BACKWARD = 2.0


def scan_s(
    m: Machine, architecture: str, operation: str, flop: Array, moved_bytes: Array, seq: Array
) -> BothWays[Array]:
    """Seconds of a recurrence over a micro-batch on one rank.

    flop, moved_bytes: forward, of the whole micro-batch; bytes of inputs and outputs only. seq:
    tokens of one sequence that a rank processes sequentially.
    """
    kind = chain(operation)
    share, step = kind.on(architecture)
    work = kernels.mixer_work_s(
        flop, moved_bytes * kind.traffic, m.vector_rate * share, m.memory_bandwidth * m.stream_frac
    )
    forward = kernels.mixer_s(
        work,
        np.ceil(seq / kind.chunk) * step,
        kind.kernels,
        ordered_frac=kind.ordered,
        gap_s=m.kernel_gap,
    )
    return BothWays(forward, forward * float(kind.backward))


def short_convolution_s(m: Machine, architecture: str, moved_bytes: Array) -> BothWays[Array]:
    """Seconds of the causal convolution over a few tokens before a recurrence. moved_bytes: read
    and written forward."""
    forward = kernels.elementwise_s(
        moved_bytes,
        1.0,
        memory_bytes_per_s=m.memory_bandwidth,
        elementwise_frac=share_of(SHORT_CONV, architecture),
        gap_s=m.kernel_gap,
    )
    return BothWays(forward, forward * _CONV_BACKWARD)


def sparse_attention_s(m: Machine, architecture: str, flop: Array) -> BothWays[Array]:
    """Seconds of attention over chosen keys. flop: forward, of all slots of all queries, on latent
    keys and values."""

    def pass_s(flop: Array) -> Array:
        return kernels.flash_attention_s(
            flop,
            1.0,
            rate_flop_per_s=m.wide_rate * m.sustained_clock,
            attention_frac=share_of(SPARSE_ATTENTION, architecture),
            gap_s=m.kernel_gap,
        )

    return BothWays(pass_s(flop), pass_s(_SPARSE_BACKWARD * flop))


def sparse_index_s(
    m: Machine, architecture: str, pairs: Array, flop: Array, queries: Array, chosen: Array
) -> BothWays[Array]:
    """Seconds of scoring `pairs` query-key pairs and choosing keys.

    flop: of the scores, forward; queries: those that see more than `chosen` keys.
    """
    rate = m.dense_rate * m.sustained_clock * share_of(SPARSE_INDEX, architecture)
    passed = _SCORE_BYTES * pairs / (m.memory_bandwidth * m.stream_frac)
    scores = flop / rate + passed + m.kernel_gap
    compared = pairs + CHOICE_PASSES * chosen * queries
    choice = compared / (m.vector_rate * share_of(SPARSE_CHOICE, architecture)) + passed
    return BothWays(scores + choice + m.kernel_gap, _INDEX_BACKWARD * scores)
