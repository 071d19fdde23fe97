"""Gradient compression: codes by hand, gathered codes that grow with the ranks, and break-even from
both sides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.formulas.compression import (
    break_even_bytes_per_s,
    codec_s,
    coded_bytes,
    exchanged_bytes,
    low_rank_bytes,
    low_rank_flop,
    sparse_bytes,
)

RANKS = st.integers(2, 4096).map(float)


def test_codes_by_hand() -> None:
    # 1e9 gradients: 8 bits and 4 B per 256; a sign each; one in a thousand as 4 B and a position of
    # 4 B: 500 times less than fp32
    assert float(coded_bytes(1e9, 8.0, 4.0, 256.0)) == pytest.approx(1.015625e9)
    assert float(coded_bytes(1e9, 1.0, 0.0, 256.0)) == pytest.approx(0.125e9)
    assert 4e9 / float(sparse_bytes(1e9, 0.001, 4.0, 4.0)) == pytest.approx(500)


def test_rank_of_a_matrix() -> None:
    # 4096 x 4096 at rank 4: 4 * 8192 numbers of 4 B, 512 times less than 64 MiB; 6 * 4 * 2^24 FLOP;
    # a bias of 4096 goes as it is
    assert float(low_rank_bytes(8192.0, 4096.0, 4.0, 4.0)) == pytest.approx(4 * 32768 + 4 * 4096)
    assert 4 * 4096**2 / float(low_rank_bytes(8192.0, 0.0, 4.0, 4.0)) == pytest.approx(512)
    assert float(low_rank_flop(4096.0**2, 4.0)) == pytest.approx(402.65e6, rel=1e-4)
    # Vogels et al. 2019 (arXiv 1905.13727, appendix): ResNet-18's layer of 512 x 4608 at rank 1,
    # 461 times less
    assert 512 * 4608 / float(low_rank_bytes(512.0 + 4608.0, 0.0, 1.0, 1.0)) == pytest.approx(
        461, abs=1
    )


def test_time_of_a_codec() -> None:
    # 12 GB at 80 % of 1.5 TB/s: 10 ms; 1 TFLOP at 100 TFLOP/s: 10 ms more
    spent = codec_s(12e9, 1e12, memory_bytes_per_s=1.5e12, stream_frac=0.8, rate_flop_per_s=100e12)
    assert float(spent) == pytest.approx(20e-3)


def test_what_is_gathered_grows_with_the_ranks() -> None:
    ranks = np.array([2.0, 8.0, 64.0, 1024.0])
    assert exchanged_bytes(1e6, ranks, 1.0).tolist() == pytest.approx([1e6, 7e6, 63e6, 1023e6])
    assert exchanged_bytes(1e6, ranks, 0.0).tolist() == pytest.approx(
        [1e6, 1.75e6, 1.96875e6, 1.998e6], rel=1e-4
    )
    # a thousandth with positions, 500 times less: no less than dense from 2 * 500 ranks on
    dense, sparse = 4e9, float(sparse_bytes(1e9, 0.001, 4.0, 4.0))
    pays = exchanged_bytes(sparse, np.array([999.0, 1001.0]), 1.0) < exchanged_bytes(
        dense, np.array([999.0, 1001.0]), 0.0
    )
    assert pays.tolist() == [True, False]


@given(
    dense=st.floats(1e6, 1e12),
    share=st.floats(1e-4, 0.95),
    codec=st.floats(1e-6, 10.0),
    beyond=st.floats(1.01, 100.0),
)
def test_compression_pays_below_its_break_even_and_not_above(
    dense: float, share: float, codec: float, beyond: float
) -> None:
    coded = share * dense
    at = float(break_even_bytes_per_s(dense, coded, codec))
    assert dense / at == pytest.approx(coded / at + codec)
    assert coded / (at / beyond) + codec < dense / (at / beyond)
    assert coded / (at * beyond) + codec > dense / (at * beyond)


@given(dense=st.floats(1.0, 1e12), more=st.floats(0.0, 1e12), codec=st.floats(0.0, 10.0))
def test_what_saves_no_bytes_never_pays(dense: float, more: float, codec: float) -> None:
    assert float(break_even_bytes_per_s(dense, dense + more, codec)) == 0.0


def test_a_codec_without_cost_always_pays() -> None:
    assert float(break_even_bytes_per_s(2.0, 1.0, 0.0)) == np.inf


@given(ranks=RANKS, size=st.floats(1.0, 1e12))
def test_codes_that_add_keep_their_ratio_at_any_size_of_the_group(
    ranks: float, size: float
) -> None:
    assert float(
        exchanged_bytes(4 * size, ranks, 0.0) / exchanged_bytes(size, ranks, 0.0)
    ) == pytest.approx(4)
