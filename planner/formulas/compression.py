"""Gradient compression: bytes on the wire, the GPU's time to encode and decode, and the bandwidth
below which it pays.

S: bytes of the dense gradient; n ranks. Codecs are bound by memory: what they read and write over
the achievable bandwidth.
"""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula


@formula(
    unit="B",
    equation="elements (bits / 8 + scale bytes / block)",
    source="definition: a code of `bits` per element and one scale per block",
)
def coded_bytes(elements: Array, bits: Array, scale_bytes: Array, block_elements: Array) -> Array:
    """Bytes of quantised gradients."""
    return elements * (bits / 8 + scale_bytes / block_elements)


@formula(
    unit="B",
    equation="density elements (value + index bytes)",
    source="Aji & Heafield 2017 (arXiv 1704.05021); DGC, Lin et al. 2018 (arXiv 1712.01887)",
)
def sparse_bytes(
    elements: Array, density_frac: Array, value_bytes: Array, index_bytes: Array
) -> Array:
    """Bytes of the largest gradients of one rank, each with its position."""
    return density_frac * elements * (value_bytes + index_bytes)


@formula(
    unit="B",
    equation="(sum of r (m + c) over matrices m x c + the rest) bytes, r <= min(m, c)",
    source=(
        "PowerSGD, Vogels et al. 2019 (arXiv 1905.13727) algorithm 1: factors P (m x r) and Q (c x"
        " r) are reduced"
    ),
)
def low_rank_bytes(
    row_plus_column_elements: Array, rest_elements: Array, rank: Array, bytes_per_element: Array
) -> Array:
    """Bytes of rank-r factors of all matrices, plus all other tensors uncompressed.
    row_plus_column: sum of m + c."""
    return (rank * row_plus_column_elements + rest_elements) * bytes_per_element


@formula(
    unit="FLOP",
    equation="6 r sum of m c",
    source=(
        "arXiv 1905.13727 algorithm 1: P = M Q, Q = M^T P and P Q^T, 2 m c r each;"
        " orthogonalisation of m r^2 left out"
    ),
)
def low_rank_flop(matrix_elements: Array, rank: Array) -> Array:
    """FLOP of encoding and decoding all matrices at rank r."""
    return 6 * rank * matrix_elements


@formula(
    unit="s",
    equation="moved / (HBM frac) + FLOP / rate",
    source=(
        "roofline, Williams et al. 2009; bytes per element of each codec are counted from what its"
        " passes read and write"
    ),
)
def codec_s(
    moved_bytes: Array,
    flop: Array,
    *,
    memory_bytes_per_s: Array,
    stream_frac: Array,
    rate_flop_per_s: Array,
) -> Array:
    """Time of encoding and decoding on the GPU. GEMMs of PowerSGD are as thin as the rank: bytes
    decide, FLOP add little."""
    return moved_bytes / (memory_bytes_per_s * stream_frac) + flop / rate_flop_per_s


@formula(
    unit="B",
    equation="all-reduce: 2 (n-1)/n C; all-gather: (n-1) C",
    source=(
        "codes that can be added are reduced in a ring; others are gathered, which grows with n:"
        " Agarwal et al. 2022 (MLSys, arXiv 2103.00543) section 2"
    ),
)
def exchanged_bytes(code_bytes: Array, ranks: Array, gathered: Array) -> Array:
    """Bytes that each rank sends to exchange codes of `code_bytes`; gathered: 1 where codes cannot
    be added on the way."""
    return np.where(
        gathered > 0,
        (ranks - 1) * code_bytes,
        2 * (ranks - 1) / np.maximum(ranks, 1.0) * code_bytes,
    )


@formula(
    unit="B/s",
    equation="(V_dense - V_coded) / codec; 0 where V_coded >= V_dense",
    source=(
        "own derivation: V_dense / B = V_coded / B + codec solved for B; start-up times of both"
        " collectives taken as equal"
    ),
)
def break_even_bytes_per_s(
    dense_sent_bytes: Array, coded_sent_bytes: Array, codec_s: Array
) -> Array:
    """Bandwidth per GPU below which compression shortens a gradient reduction that nothing
    hides; infinite for a codec without cost."""
    saved = np.maximum(dense_sent_bytes - coded_sent_bytes, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(saved > 0, saved / np.asarray(codec_s, float), 0.0)
