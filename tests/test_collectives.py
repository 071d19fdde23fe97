"""Time of collectives: the volumes of the textbook, cases worked by hand, and what placement on nodes does."""

from __future__ import annotations

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.estimate import communicate
from planner.estimate.communicate import place
from planner.formulas.collectives import (
    all_to_all_s,
    node_bandwidth_bytes_per_s,
    remote_copies_frac,
    ring_inter_s,
    ring_intra_s,
    send_recv_s,
    tree_inter_s,
)

RANKS = st.integers(2, 4096).map(float)
SIZES = st.floats(1.0, 1e11)
QUIET = {"latency_s": 0.0, "bandwidth_bytes_per_s": 100e9, "frac": 1.0, "ramp": 0.0}


@pytest.mark.parametrize(("ranks", "volume"), [(2, 1.0), (4, 1.5), (8, 1.75), (1024, 2 * 1023 / 1024)])
def test_ring_volume(ranks: int, volume: float) -> None:
    # an all-reduce moves 2 (n-1)/n of the tensor over each link, its halves one (n-1)/n each (nccl-tests, PERFORMANCE.md)
    assert float(ring_intra_s(1e9, ranks, 2, **QUIET)) == pytest.approx(volume * 1e9 / 100e9)
    assert float(ring_intra_s(1e9, ranks, 1, **QUIET)) == pytest.approx(volume * 1e9 / 200e9)
    assert float(ring_inter_s(1e9, ranks, 2, hop_s=0.0, node_bytes_per_s=100e9)) == pytest.approx(volume * 1e9 / 100e9)


def test_ring_inside_a_node() -> None:
    # 8 ranks, 1 GB, 300 GB/s of which 80 % are reached: 1.75 GB / 240 GB/s = 7.2917 ms; latency 2/2 * 4 us * 8 = 32 us;
    # 1e-8 * sqrt(1e9) = 316.2 us
    time = ring_intra_s(1e9, 8, 2, latency_s=4e-6, bandwidth_bytes_per_s=300e9, frac=0.8, ramp=1e-8)
    assert float(time) == pytest.approx(7.291667e-3 + 32e-6 + 316.2278e-6, rel=1e-6)
    assert float(ring_intra_s(1e9, 1, 2, latency_s=4e-6, bandwidth_bytes_per_s=300e9, frac=0.8, ramp=1e-8)) == 0.0


def test_ring_across_nodes() -> None:
    # 16 ranks: 2 * 15 hops of 5 us = 150 us, 2 * 15/16 GB / 100 GB/s = 18.75 ms
    assert float(ring_inter_s(1e9, 16, 2, hop_s=5e-6, node_bytes_per_s=100e9)) == pytest.approx(18.9e-3)
    assert float(ring_inter_s(1e9, 1, 2, hop_s=5e-6, node_bytes_per_s=100e9)) == 0.0


def test_tree_across_nodes() -> None:
    # 3 nodes: 2 * log2(4) = 4 levels of 5 hops of 5 us = 100 us, 2.2 GB / 100 GB/s = 22 ms
    assert float(tree_inter_s(1e9, 3, hop_s=5e-6, node_bytes_per_s=100e9)) == pytest.approx(22.1e-3)


def test_trees_win_small_messages_on_many_nodes_and_rings_large_ones() -> None:
    link = {"hop_s": 5e-6, "node_bytes_per_s": 100e9}
    assert tree_inter_s(1e4, 128, **link) < 0.1 * ring_inter_s(1e4, 1024, 2, **link)
    assert tree_inter_s(1e10, 2, **link) > ring_inter_s(1e10, 16, 2, **link)


@given(ranks=RANKS, size=SIZES)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(ranks: float, size: float) -> None:
    inside = {"latency_s": 4e-6, "bandwidth_bytes_per_s": 300e9, "frac": 0.8, "ramp": 0.0}
    assert float(ring_intra_s(size, ranks, 2, **inside)) == pytest.approx(2 * float(ring_intra_s(size, ranks, 1, **inside)))
    across = {"hop_s": 5e-6, "node_bytes_per_s": 100e9}
    assert float(ring_inter_s(size, ranks, 2, **across)) == pytest.approx(2 * float(ring_inter_s(size, ranks, 1, **across)))


def test_leaving_a_node() -> None:
    # 4 ranks own 4 cards of 25 GB/s, 80 % reached: 80 GB/s, unless the link inside the node is slower
    assert float(node_bandwidth_bytes_per_s(4, 25e9, 0.8, 240e9)) == pytest.approx(80e9)
    assert float(node_bandwidth_bytes_per_s(8, 50e9, 1.0, 240e9)) == 240e9


def test_all_to_all() -> None:
    # 16 ranks, 8 in a node: 15/16 GB / 100 GB/s = 9.375 ms inside; half of the copies leave: 0.5 GB / 9 GB/s = 55.556 ms; 20 us
    link = {"latency_s": 20e-6, "intra_bytes_per_s": 100e9, "nic_bytes_per_gpu_per_s": 10e9, "nic_frac": 0.9}
    assert float(all_to_all_s(1e9, 16, 8, 1.0, **link)) == pytest.approx(9.375e-3 + 55.5556e-3 + 20e-6, rel=1e-5)
    # routing that reaches each node once with half of the copies halves what leaves
    saved = float(all_to_all_s(1e9, 16, 8, 1.0, **link)) - float(all_to_all_s(1e9, 16, 8, 0.5, **link))
    assert saved == pytest.approx(27.7778e-3, rel=1e-5)
    assert float(all_to_all_s(1e9, 8, 8, 1.0, **link)) == pytest.approx(8.75e-3 + 20e-6)  # one node: nothing leaves
    assert float(all_to_all_s(1e9, 1, 1, 1.0, **link)) == 0.0


def test_copies_that_leave() -> None:
    # 2 choices over 2 nodes reach 2 (1 - 1/4) = 1.5 nodes: three quarters of the two copies
    assert float(remote_copies_frac(2, 2, 1e9)) == pytest.approx(0.75)
    assert float(remote_copies_frac(1, 8, 1e9)) == pytest.approx(1 / 8)
    assert float(remote_copies_frac(1e9, 8, 1e9)) == pytest.approx(1.0, rel=1e-6)
    # DeepSeek-V3 (arXiv 2412.19437, section 2.1.2): 8 experts per token on 8 nodes, at most 4 nodes each; chance alone gives 5.25
    assert float(remote_copies_frac(8, 8, 1e9)) * 8 == pytest.approx(5.25, abs=0.01)
    assert float(remote_copies_frac(8, 8, 4)) == pytest.approx(0.5)


def test_expected_nodes_agree_with_drawing_them() -> None:
    drawn = np.random.default_rng(1).integers(0, 6, size=(20000, 4))
    distinct = np.mean([len(set(row)) for row in drawn.tolist()])
    assert float(remote_copies_frac(6, 4, 1e9)) * 4 == pytest.approx(distinct, rel=0.01)


def test_point_to_point() -> None:
    assert send_recv_s(1e9, latency_s=5e-6, bytes_per_s=50e9) == pytest.approx(20.005e-3)  # 1 GB at 50 GB/s, and 5 us


# ---------------------------------------------------------------------------------------------- placement on nodes


@pytest.mark.parametrize(
    ("ranks", "stride", "domain", "inside"),
    [(8, 1, 8, 8), (4, 1, 8, 4), (16, 4, 8, 2), (16, 8, 8, 1), (16, 16, 8, 1), (16, 1, 72, 16), (1, 64, 8, 1), (4, 3, 8, 2)],
)
def test_ranks_of_a_group_in_a_node(ranks: int, stride: int, domain: int, inside: int) -> None:
    group = place(np.array([float(ranks)]), np.array([float(stride)]), domain)
    assert group.ranks_per_node.tolist() == [inside]
    assert group.nodes.tolist() == [max(ranks / inside, 1)]


def _all_reduce(gpus: int, ranks: float, stride: float, size: float) -> float:
    plan = plans.plan(gpus=gpus)
    group = place(np.array([ranks]), np.array([stride]), plan.cluster.nvlink_domain)
    return float(communicate.all_reduce_s(plans.numbers(plan), np.array([size]), group)[0])


def test_a_large_all_reduce_inside_a_node_reaches_the_measured_bus_bandwidth() -> None:
    # eight A100 over NVLink 3: 239 GB/s of bus bandwidth, 2 (n-1)/n S / T, NCCL tables
    bus = 1.75 * 8e9 / _all_reduce(8, 8, 1, 8e9)
    assert bus == pytest.approx(239e9, rel=0.05)


@given(size=st.floats(1e3, 1e10))
def test_crossing_nodes_is_never_faster(size: float) -> None:
    inside, across = _all_reduce(16, 8, 1, size), _all_reduce(16, 8, 8, size)
    assert across > inside
    assert _all_reduce(64, 64, 1, size) > _all_reduce(16, 16, 1, size)


def test_a_group_that_fills_its_nodes_uses_all_their_cards() -> None:
    # two nodes of 8 ranks leave over 8 cards, two nodes of one rank over one: close to eight times slower when bytes dominate
    whole, single = _all_reduce(16, 16, 1, 10e9), _all_reduce(16, 2, 8, 10e9)
    volume = (2 * 15 / 16) / (2 * 1 / 2)
    assert single / whole * volume == pytest.approx(8, rel=0.05)
