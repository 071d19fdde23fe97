"""Time of collectives: the volumes of the textbook, cases worked by hand, and what placement on
nodes does."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.estimate import communicate
from planner.estimate.communicate import place
from planner.formulas.collectives import (
    all_to_all_s,
    card_bandwidth_bytes_per_s,
    distinct_copies,
    group_bandwidth_bytes_per_s,
    node_bandwidth_bytes_per_s,
    ring_inter_s,
    ring_intra_s,
    send_recv_s,
    switch_all_reduce_s,
    tree_inter_s,
)
from planner.inputs import catalog
from planner.specs.cluster import Tiers
from planner.specs.hardware import LinkSpec

RANKS = st.integers(2, 4096).map(float)
SIZES = st.floats(1.0, 1e11)
QUIET = {"base_s": 0.0, "latency_s": 0.0, "bytes_per_s": 100e9, "ramp": 0.0}
STILL = {"base_s": 0.0, "latency_s": 0.0, "hop_s": 0.0, "node_bytes_per_s": 100e9}
LINK = {"base_s": 5e-6, "latency_s": 2e-6, "hop_s": 20e-6, "node_bytes_per_s": 100e9}


@pytest.mark.parametrize(
    ("ranks", "volume"), [(2, 1.0), (4, 1.5), (8, 1.75), (1024, 2 * 1023 / 1024)]
)
def test_ring_volume(ranks: int, volume: float) -> None:
    # an all-reduce moves 2 (n-1)/n of the tensor over each link, its halves one (n-1)/n each
    # (nccl-tests, PERFORMANCE.md)
    assert float(ring_intra_s(1e9, ranks, 2, **QUIET)) == pytest.approx(volume * 1e9 / 100e9)
    assert float(ring_intra_s(1e9, ranks, 1, **QUIET)) == pytest.approx(volume * 1e9 / 200e9)
    assert float(ring_inter_s(1e9, ranks, 2, 2, **STILL)) == pytest.approx(volume * 1e9 / 100e9)


def test_ring_inside_a_node() -> None:
    # 8 ranks, 1 GB, 240 GB/s: 1.75 GB / 240 GB/s = 7.2917 ms; base 5 us; 2 * 7 steps of 4/2 us = 28
    # us; 1e-8 * sqrt(1e9) = 316.2 us
    link = {"base_s": 5e-6, "latency_s": 4e-6, "bytes_per_s": 240e9, "ramp": 1e-8}
    assert float(ring_intra_s(1e9, 8, 2, **link)) == pytest.approx(
        7.291667e-3 + 5e-6 + 28e-6 + 316.2278e-6, rel=1e-6
    )
    assert float(ring_intra_s(1e9, 1, 2, **link)) == 0.0
    # the base is paid once per call, whatever the call does
    assert float(ring_intra_s(0.0, 2, 1, **link)) == pytest.approx(5e-6 + 2e-6)
    assert float(ring_intra_s(0.0, 2, 2, **link)) == pytest.approx(5e-6 + 4e-6)


def test_ring_across_nodes() -> None:
    # 16 ranks, 8 in each of 2 nodes: of 15 steps one in eight takes 20 us, the others 2/2 us: 2 *
    # 15 * 3.375 us = 101.25 us; base 5 us, 2 * 15/16 GB / 100 GB/s = 18.75 ms
    assert float(ring_inter_s(1e9, 16, 2, 2, **LINK)) == pytest.approx(18.75e-3 + 101.25e-6 + 5e-6)
    # one rank per node: every step leaves
    assert float(ring_inter_s(0.0, 16, 16, 2, **LINK)) == pytest.approx(5e-6 + 2 * 15 * 20e-6)
    assert float(ring_inter_s(1e9, 1, 1, 2, **LINK)) == 0.0


def test_a_ring_whose_steps_all_stay_is_the_ring_inside_a_node() -> None:
    # a fabric as fast and as quick as the link inside the node makes no difference
    across = ring_inter_s(1e8, 16, 2, 2, **(LINK | {"hop_s": 1e-6}))
    inside = ring_intra_s(1e8, 16, 2, base_s=5e-6, latency_s=2e-6, bytes_per_s=100e9, ramp=0.0)
    assert float(across) == pytest.approx(float(inside))


def test_tree_across_nodes() -> None:
    # 3 nodes of 8 ranks, 8 MiB: 2 * log2(4) = 4 levels of 20 us and a first chunk of 8/2 = 4 MiB at
    # 100 GB/s = 41.943 us, base 5 us, a chain of 7 * 2 us inside the nodes, 16 MiB / 100 GB/s =
    # 167.772 us
    size = 8 * 2.0**20
    assert float(tree_inter_s(size, 3, 8, **LINK)) == pytest.approx(
        4 * (20e-6 + 41.943e-6) + 5e-6 + 14e-6 + 167.772e-6, rel=1e-5
    )
    # no more than 1 MiB per rank is waited for, however large the message
    large = float(tree_inter_s(1e12, 3, 8, **LINK)) - 2e12 / 100e9
    assert large == pytest.approx(4 * (20e-6 + 83.886e-6) + 19e-6, rel=1e-4)


def test_trees_win_small_messages_on_many_nodes_and_rings_large_ones() -> None:
    assert tree_inter_s(1e4, 128, 8, **LINK) < 0.1 * ring_inter_s(1e4, 1024, 128, 2, **LINK)
    assert tree_inter_s(1e10, 2, 8, **LINK) > ring_inter_s(1e10, 16, 2, 2, **LINK)


def test_reduction_in_the_switch() -> None:
    # 8 ranks, 1 GB: 1.75 GB / 500 GB/s = 3.5 ms, base 5 us, setup 60 us
    assert float(
        switch_all_reduce_s(1e9, 8, base_s=5e-6, setup_s=60e-6, bytes_per_s=500e9)
    ) == pytest.approx(3.565e-3)


def test_bandwidth_of_a_group_inside_a_node() -> None:
    link = {
        "bandwidth_bytes_per_s": 448e9,
        "frac": 0.7,
        "two_rank_frac": 1.0,
        "peers": 7.0,
        "host_bytes_per_s": np.inf,
    }
    ranks = np.array([2.0, 4.0, 8.0])
    # a switch gives every group the whole link
    assert group_bandwidth_bytes_per_s(ranks, mesh=0.0, **link).tolist() == pytest.approx(
        [313.6e9] * 3
    )
    # a link for every pair: k ranks use k-1 of 7
    assert group_bandwidth_bytes_per_s(ranks, mesh=1.0, **link).tolist() == pytest.approx(
        [44.8e9, 134.4e9, 313.6e9]
    )
    # two ranks of a switched node have fewer paths; a group of two in a node of two owns all of a
    # mesh's links
    assert float(
        group_bandwidth_bytes_per_s(2.0, mesh=0.0, **(link | {"two_rank_frac": 0.5}))
    ) == pytest.approx(156.8e9)
    assert float(
        group_bandwidth_bytes_per_s(2.0, mesh=1.0, **(link | {"peers": 1.0}))
    ) == pytest.approx(313.6e9)
    # bridges of the host that carry 20 GB/s per GPU set the limit
    assert (
        float(group_bandwidth_bytes_per_s(8.0, mesh=0.0, **(link | {"host_bytes_per_s": 20e9})))
        == 20e9
    )


@given(ranks=RANKS, size=SIZES)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(ranks: float, size: float) -> None:
    inside = QUIET | {"latency_s": 4e-6}
    assert float(ring_intra_s(size, ranks, 2, **inside)) == pytest.approx(
        2 * float(ring_intra_s(size, ranks, 1, **inside))
    )
    across = LINK | {"base_s": 0.0}
    both, half = (
        float(ring_inter_s(size, ranks, ranks / 2, passes, **across)) for passes in (2, 1)
    )
    assert both == pytest.approx(2 * half)


def test_leaving_a_node() -> None:
    # 4 ranks own 4 cards of 25 GB/s, 80 % reached: 80 GB/s, unless the link inside the node is
    # slower
    assert float(
        node_bandwidth_bytes_per_s(4, card_bandwidth_bytes_per_s(25e9, 0.8, 1e15), 240e9)
    ) == pytest.approx(80e9)
    assert (
        float(node_bandwidth_bytes_per_s(8, card_bandwidth_bytes_per_s(50e9, 1.0, 1e15), 240e9))
        == 240e9
    )
    # over TCP no card helps a rank whose sockets move 1.2 GB/s
    assert float(
        node_bandwidth_bytes_per_s(2, card_bandwidth_bytes_per_s(50e9, 0.6, 1.2e9), 240e9)
    ) == pytest.approx(2.4e9)


def test_all_to_all() -> None:
    # 16 ranks, 8 in a node: 0.4 GB / 100 GB/s = 4 ms inside beside 0.5 GB / 9 GB/s = 55.556 ms
    # that leave; base 5 us, 7 steps of 1 us inside, 20 us to the other node
    link = {
        "base_s": 5e-6,
        "latency_s": 2e-6,
        "hop_s": 20e-6,
        "intra_bytes_per_s": 100e9,
        "card_bytes_per_s": 9e9,
    }
    assert float(all_to_all_s(4e8, 5e8, 16, 8, **link)) == pytest.approx(55.5556e-3 + 32e-6)
    # where little leaves, the links inside are what takes the time
    assert float(all_to_all_s(8e9, 5e8, 16, 8, **link)) == pytest.approx(80e-3 + 32e-6)
    assert float(all_to_all_s(8.75e8, 0.0, 8, 8, **link)) == pytest.approx(
        8.75e-3 + 12e-6
    )  # one node: nothing leaves
    assert float(all_to_all_s(1e9, 0.0, 1, 1, **link)) == 0.0


def test_copies_that_leave() -> None:
    # 2 choices over 2 nodes reach 2 (1 - 1/4) = 1.5 nodes
    assert float(distinct_copies(2, 2, 1e9)) == pytest.approx(1.5)
    assert float(distinct_copies(1, 8, 1e9)) == pytest.approx(1.0)
    assert float(distinct_copies(1e9, 8, 1e9)) == pytest.approx(8.0, rel=1e-6)
    # DeepSeek-V3 (arXiv 2412.19437, section 2.1.2): 8 experts per token on 8 nodes, at most 4 nodes
    # each; chance alone gives 5.25
    assert float(distinct_copies(8, 8, 1e9)) == pytest.approx(5.25, abs=0.01)
    assert float(distinct_copies(8, 8, 4)) == pytest.approx(4.0)


def test_expected_nodes_agree_with_drawing_them() -> None:
    drawn = np.random.default_rng(1).integers(0, 6, size=(20000, 4))
    distinct = np.mean([len(set(row)) for row in drawn.tolist()])
    assert float(distinct_copies(6, 4, 1e9)) == pytest.approx(distinct, rel=0.01)


def test_point_to_point() -> None:
    assert send_recv_s(1e9, latency_s=5e-6, bytes_per_s=50e9) == pytest.approx(
        20.005e-3
    )  # 1 GB at 50 GB/s, and 5 us


@pytest.mark.parametrize(
    ("ranks", "stride", "domain", "inside"),
    [
        (8, 1, 8, 8),
        (4, 1, 8, 4),
        (16, 4, 8, 2),
        (16, 8, 8, 1),
        (16, 16, 8, 1),
        (16, 1, 72, 16),
        (1, 64, 8, 1),
        (4, 3, 8, 2),
    ],
)
def test_ranks_of_a_group_in_a_node(ranks: int, stride: int, domain: int, inside: int) -> None:
    group = place(np.array([float(ranks)]), np.array([float(stride)]), Tiers(domain, np.inf))
    assert group.ranks_per_node.tolist() == [inside]
    assert group.nodes.tolist() == [max(ranks / inside, 1)]


def _all_reduce(gpus: int, ranks: float, stride: float, size: float) -> float:
    plan = plans.plan(gpus=gpus)
    group = place(np.array([ranks]), np.array([stride]), plan.cluster.tiers)
    return float(communicate.all_reduce_s(plans.numbers(plan), np.array([size]), group)[0])


def test_a_large_all_reduce_inside_a_node_reaches_the_measured_bus_bandwidth() -> None:
    # eight A100 over NVLink 3: 239 GB/s of bus bandwidth, 2 (n-1)/n S / T, NCCL tests; six and
    # seven reach 227 at 1 GB in the table that the link is fitted on
    bus = 1.75 * 8e9 / _all_reduce(8, 8, 1, 8e9)
    assert bus == pytest.approx(239e9, rel=0.06)


@given(size=st.floats(1e3, 1e10))
def test_crossing_nodes_is_never_faster(size: float) -> None:
    inside, across = _all_reduce(16, 8, 1, size), _all_reduce(16, 8, 8, size)
    assert across > inside
    assert _all_reduce(64, 64, 1, size) > _all_reduce(16, 16, 1, size)


def test_a_group_that_fills_its_nodes_uses_all_their_cards() -> None:
    # two nodes of 8 ranks leave over 8 cards, two nodes of one rank over one: close to eight times
    # slower when bytes dominate
    whole, single = _all_reduce(16, 16, 1, 10e9), _all_reduce(16, 2, 8, 10e9)
    volume = (2 * 15 / 16) / (2 * 1 / 2)
    assert single / whole * volume == pytest.approx(8, rel=0.05)


# ---------------------------------------------------------------------------------------- links as


def test_a_pair_of_a_mesh_sends_over_its_own_link() -> None:
    # eight MI300X: two of them reach 47.7 GB/s in an all-reduce of 4 GB, all eight 313
    # (stas00/ml-engineering network/README.md)
    plan = plans.plan(gpus=8, gpu="mi300x-192gb")
    m = plans.numbers(plan)
    for ranks, measured in ((2.0, 47.7e9), (8.0, 313e9)):
        group = place(np.array([ranks]), np.ones(1), Tiers(8, np.inf))
        bus = (
            2
            * (ranks - 1)
            / ranks
            * 4e9
            / float(communicate.all_reduce_s(m, np.array([4e9]), group)[0])
        )
        assert bus == pytest.approx(measured, rel=0.1)
    # two GPUs rented of the eight have that one link as well
    rented = plans.numbers(plans.plan(gpus=2, gpu="mi300x-192gb"))
    assert (
        4e9
        / float(
            communicate.all_reduce_s(
                rented, np.array([4e9]), place(np.array([2.0]), np.ones(1), Tiers(2, np.inf))
            )[0]
        )
        < 50e9
    )
    assert 4e9 / float(communicate.send_s(m, np.array([4e9]), np.zeros(1))[0]) == pytest.approx(
        48e9, rel=0.02
    )  # 0.75 of 64


def test_the_switch_reduces_large_messages_of_large_groups() -> None:
    # eight H200: 482 GB/s of bus bandwidth in the switch, 366 in rings, 17 GB and 8 GB
    # (stas00/ml-engineering network/README.md)
    m = plans.numbers(plans.plan(gpus=8, gpu="h200-sxm-141gb"))
    rings = plans.numbers(plans.plan(gpus=8, gpu="h200-sxm-141gb"), intra_switch_ranks=1e9)

    def times(ranks: float, size: float) -> tuple[float, float]:
        group = place(np.array([ranks]), np.ones(1), Tiers(8, np.inf))
        first, other = (
            float(communicate.all_reduce_s(x, np.array([size]), group)[0]) for x in (m, rings)
        )
        return first, other

    switched, ring = times(8, 16e9)
    assert 1.75 * 16e9 / switched == pytest.approx(482e9, rel=0.08)
    assert 1.75 * 16e9 / ring == pytest.approx(366e9, rel=0.02)
    small, small_ring = times(8, 1e6)
    assert small == small_ring  # a megabyte is not worth setting the switch up
    four, four_ring = times(4, 16e9)
    assert four == four_ring  # nor do four ranks use it


def test_groups_of_one_host_share_its_bridges() -> None:
    # a pair on a server of eight, with three other pairs at work, has a quarter of the bridges;
    # alone on a server of two, all
    pair = place(np.array([2.0]), np.ones(1), Tiers(2, np.inf))
    size = np.array([1e9])
    crowded, alone = (
        float(
            communicate.all_reduce_s(plans.numbers(plans.plan(gpus=n, gpu="rtx5090")), size, pair)[
                0
            ]
        )
        for n in (8, 2)
    )
    assert 1e9 / crowded == pytest.approx(
        28e9, rel=0.05
    )  # eight RTX 5090 reach 28 GB/s each (NVIDIA/nccl#1639)
    assert 1e9 / alone == pytest.approx(0.56 * 63e9, rel=0.05)


def test_links_state_what_their_model_needs() -> None:
    for link in catalog.load_all("networks", LinkSpec):
        assert (link.host_bandwidth is not None) == link.id.startswith("pcie"), link.id
        if link.scope == "intra_node" and link.id != "nvlink-c2c":  # which carries no collectives
            assert link.base_latency is not None, link.id


ROOT = Path(__file__).resolve().parents[1]
TABLE = (
    ROOT / "tests" / "data" / "collectives.csv"
)  # every third size of the public tables; source and note in each row


@cache
def fitting() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "fit_collectives", ROOT / "benchmarks" / "fit_collectives.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _error(link: str, **only: str) -> tuple[np.ndarray, int]:
    f = fitting()
    rows = [
        r
        for r in f.rows_of(TABLE)
        if f.usable(r) and f.link_of(r) == link and all(r[k] == v for k, v in only.items())
    ]
    return np.asarray(f.errors(f.calls(rows))), len(rows)


@pytest.mark.parametrize(
    ("link", "rows", "mape", "bias"),
    [
        ("nvlink3", 60, 0.09, 0.03),
        ("nvlink4", 70, 0.07, 0.02),
        ("nvlink5", 110, 0.08, 0.02),
        ("ib-ndr", 35, 0.06, 0.02),
        ("pcie5", 7, 0.15, 0.05),
        ("efa", 8, 0.30, 0.25),
        ("ethernet", 10, 0.05, 0.02),
    ],
)
def test_shipped_links_reach_their_stated_error(
    link: str, rows: int, mape: float, bias: float
) -> None:
    error, count = _error(link)
    assert count >= rows
    assert np.abs(error).mean() < mape
    assert abs(np.median(error)) < bias


def test_four_and_eight_of_a_cube_mesh() -> None:
    for ranks in ("4", "8"):
        error, _ = _error("nvlink2", ranks=ranks)
        assert np.abs(error).mean() < 0.13


def test_trees_on_many_nodes() -> None:
    for ranks in (256, 512, 1024, 8192):
        error, _ = _error("ib-ndr", ranks=str(ranks))
        assert np.abs(error).mean() < 0.10, ranks


def test_one_number_says_how_poor_a_host_is() -> None:
    # four L40S whose host carries 20 GB/s in all: 5 GB/s each; as shipped, PCIe 4 is four times as
    # fast
    f = fitting()
    rows = [
        r
        for r in f.rows_of(TABLE)
        if r["gpu"] == "l40s" and r["ranks"] == "4" and float(r["bytes"]) >= 1e6
    ]
    calls = f.calls(rows)
    assert len(rows) >= 9
    assert np.abs(f.errors(calls, {"host_bandwidth": 20e9})).mean() < 0.12
    assert np.abs(f.errors(calls)).mean() > 0.5


def test_a_fit_finds_the_numbers_that_made_a_table() -> None:
    pytest.importorskip("scipy")
    f = fitting()
    rows = [r for r in f.rows_of(TABLE) if f.usable(r) and f.link_of(r) == "nvlink4"]
    values = {
        "intra_base": 9e-6,
        "intra_latency": 3e-6,
        "intra_ramp": 8e-9,
        "intra_all_reduce": 0.6,
        "intra_all_gather": 0.7,
        "intra_reduce_scatter": 0.65,
        "intra_two_rank": 0.7,
        "intra_switch": 0.9,
        "intra_switch_setup": 70e-6,
    }
    times = f.predicted_s(f.calls(rows), values)
    calls = f.calls(
        [row | {"time_us": str(1e6 * time)} for row, time in zip(rows, times, strict=True)]
    )
    parameters = f.determined(calls, catalog.load("networks", LinkSpec, "nvlink4"))
    result = f.fit(calls, parameters)
    assert result == pytest.approx(values, rel=1e-3)
