"""All-reduce algorithms: their textbook laws, what the machine makes of them, and the command."""

from __future__ import annotations

import numpy as np
import plans
import pytest
from command import dpplan
from hypothesis import given
from hypothesis import strategies as st

from planner.estimate import all_reduce as by_name
from planner.estimate.all_reduce import Network, crossovers, fastest, network, seconds, square_row
from planner.formulas.all_reduce import (
    exchange_steps,
    grid_all_reduce_s,
    halving_doubling_s,
    least_sent_bytes,
    parameter_server_s,
    recursive_doubling_s,
)
from planner.formulas.collectives import ring_inter_s, ring_intra_s

# one link everywhere, no start-up of a call: steps of 1 us and 10 GB/s
FLAT = {
    "base_s": 0.0,
    "latency_s": 2e-6,
    "hop_s": 1e-6,
    "pair_bytes_per_s": 10e9,
    "card_bytes_per_s": 10e9,
    "ramp": 0.0,
}
RING = {"base_s": 0.0, "latency_s": 2e-6, "bytes_per_s": 10e9, "ramp": 0.0}
POWERS = st.integers(1, 12).map(lambda k: 2.0**k)
SIZES = st.floats(1.0, 1e11)


def net(
    gpus: int,
    gpu: str = "a100-sxm4-80gb",
    ranks: int | None = None,
    servers: float = 1.0,
    **numbers: float,
) -> Network:
    plan = plans.plan(gpus=gpus, gpu=gpu, global_batch=gpus)
    return network(plans.numbers(plan, **numbers), plan.cluster, ranks or gpus, servers)


def test_steps_of_an_exchange() -> None:
    assert exchange_steps(np.array([1.0, 2.0, 3.0, 4.0, 7.0, 8.0, 1024.0])).tolist() == [
        0,
        1,
        1,
        2,
        2,
        3,
        10,
    ]


def test_recursive_doubling() -> None:
    # 8 ranks, 1 MB: three steps of 1 us + 100 us; 6 ranks: two steps among four, and one before and
    # one after
    assert float(recursive_doubling_s(1e6, 8, 8, **FLAT)) == pytest.approx(303e-6)
    assert float(recursive_doubling_s(1e6, 6, 8, **FLAT)) == pytest.approx(404e-6)
    # 16 ranks, 8 in a node, a network ten times as slow: the fourth step takes 20 us + 1 ms
    slow = FLAT | {"hop_s": 20e-6, "card_bytes_per_s": 1e9}
    assert float(recursive_doubling_s(1e6, 16, 8, **slow)) == pytest.approx(303e-6 + 1020e-6)
    assert float(recursive_doubling_s(1e6, 1, 8, **FLAT)) == 0.0


def test_halving_and_doubling() -> None:
    # 8 ranks, 1 MB: 2 * 3 steps of 1 us, 2 * 7/8 MB at 10 GB/s = 175 us
    assert float(halving_doubling_s(1e6, 8, 8, **FLAT)) == pytest.approx(181e-6)
    # 32 ranks, 8 in a node, a network ten times as slow: 2 * 2 steps of 20 us and 2 (1/8 - 1/32) MB
    # at 1 GB/s = 187.5 us more
    slow = FLAT | {"hop_s": 20e-6, "card_bytes_per_s": 1e9}
    assert float(halving_doubling_s(1e6, 32, 8, **slow)) == pytest.approx(181e-6 + 80e-6 + 187.5e-6)
    # three ranks: two exchange halves, the third sends all of it before and gets all of it after
    assert float(halving_doubling_s(1e6, 3, 8, **FLAT)) == pytest.approx(
        2 * 1e-6 + 100e-6 + 2 * (1e-6 + 100e-6)
    )


def test_parameter_server() -> None:
    # 16 workers, 100 MB, one server of 10 GB/s, workers of 5 GB/s: the server takes 160 ms each
    # way; 16 servers leave the workers' own 20 ms
    link = {"base_s": 0.0, "hop_s": 1e-3, "worker_bytes_per_s": 5e9, "server_bytes_per_s": 10e9}
    assert float(parameter_server_s(1e8, 16, 1, **link)) == pytest.approx(2 * (160e-3 + 1e-3))
    assert float(parameter_server_s(1e8, 16, 16, **link)) == pytest.approx(2 * (20e-3 + 1e-3))
    assert float(parameter_server_s(1e8, 1, 1, **link)) == 0.0
    # incast: with one server the time grows with the workers, without end
    assert float(parameter_server_s(1e8, 1600, 1, **link)) == pytest.approx(
        100 * 2 * 160e-3, rel=1e-3
    )


@given(ranks=POWERS, size=SIZES)
def test_halving_sends_the_least_that_can_be(ranks: float, size: float) -> None:
    quiet = FLAT | {"latency_s": 0.0, "hop_s": 0.0}
    least = float(least_sent_bytes(size, ranks)) / 10e9
    assert float(halving_doubling_s(size, ranks, ranks, **quiet)) == pytest.approx(least)
    assert float(ring_intra_s(size, ranks, 2, **(RING | {"latency_s": 0.0}))) == pytest.approx(
        least
    )
    assert float(recursive_doubling_s(size, ranks, ranks, **quiet)) == pytest.approx(
        np.log2(ranks) * size / 10e9
    )


@given(ranks=POWERS)
def test_latency_grows_with_log_n_or_with_n(ranks: float) -> None:
    assert float(recursive_doubling_s(0.0, ranks, ranks, **FLAT)) == pytest.approx(
        np.log2(ranks) * 1e-6
    )
    assert float(halving_doubling_s(0.0, ranks, ranks, **FLAT)) == pytest.approx(
        2 * np.log2(ranks) * 1e-6
    )
    assert float(ring_intra_s(0.0, ranks, 2, **RING)) == pytest.approx(2 * (ranks - 1) * 1e-6)


@given(size=SIZES)
def test_two_ranks_make_the_ring_and_halving_one(size: float) -> None:
    assert float(halving_doubling_s(size, 2, 2, **FLAT)) == pytest.approx(
        float(ring_intra_s(size, 2, 2, **RING))
    )
    # doubling saves a step and sends the same
    assert float(recursive_doubling_s(size, 2, 2, **FLAT)) == pytest.approx(1e-6 + size / 10e9)


@given(size=SIZES, rows=POWERS, columns=POWERS)
def test_a_grid_sends_as_little_as_a_ring_in_fewer_steps(
    size: float, rows: float, columns: float
) -> None:
    half, column = (
        ring_intra_s(size, rows, 1, **RING),
        ring_intra_s(size / rows, columns, 2, **RING),
    )
    grid, ring = (
        float(grid_all_reduce_s(half, column, half)),
        float(ring_intra_s(size, rows * columns, 2, **RING)),
    )
    fewer = 2 * (rows * columns - 1) - 2 * (rows - 1) - 2 * (columns - 1)
    assert ring - grid == pytest.approx(fewer * 1e-6, rel=1e-6, abs=1e-9 * ring)


@given(gpus=st.sampled_from([8, 16, 64, 512]), size=st.floats(1e3, 1e11))
def test_an_estimate_takes_the_faster_of_ring_and_tree(gpus: int, size: float) -> None:
    # A100: no reduction in the switch; inside a node estimates have no tree
    x = net(gpus)
    times = seconds(x, np.array([size]))
    expected = times["ring"] if gpus <= 8 else np.minimum(times["ring"], times["tree"])
    assert by_name.as_estimated(x, np.array([size])) == pytest.approx(expected)


@given(size=st.floats(1e3, 1e11))
def test_an_estimate_takes_the_switch_where_it_is_faster(size: float) -> None:
    x = net(8, "h100-sxm5-80gb")
    times = seconds(x, np.array([size]))
    assert by_name.as_estimated(x, np.array([size])) == pytest.approx(
        np.minimum(times["ring"], times["switch"])
    )


def test_one_rank_takes_no_time() -> None:
    times = seconds(net(8, ranks=1), np.array([1e3, 1e9]))
    assert times
    assert all(column.tolist() == [0.0, 0.0] for column in times.values())


def test_a_ring_over_one_node_is_the_hierarchy_but_for_the_calls() -> None:
    # nothing to do between nodes: reduce-scatter and all-gather in turn, one more start and one
    # more ramp than the ring
    x = net(8, intra_ramp=0.0)
    size = np.array([1e6, 1e9])
    ring = seconds(x, size)["ring"]
    assert by_name.BY_NAME["hierarchical"].seconds(x, size) == pytest.approx(
        ring + float(x.m.intra_base)
    )


def test_hierarchy_by_hand() -> None:
    # 2 nodes of 8 A100: half passes inside, 2 * 1/2 of an eighth between nodes over one card each
    x = net(16, intra_ramp=0.0, intra_base=0.0, intra_latency=0.0, inter_hop=0.0)
    inside, card = float(x.inside(8.0)), float(x.card(x.ranks))
    expected = 2 * 7 / 8 * 1e9 / inside + 1e9 / 8 / card
    assert float(seconds(x, np.array([1e9]))["hierarchical"][0]) == pytest.approx(expected)
    assert card == pytest.approx(25e9, rel=0.2)


@pytest.mark.parametrize(
    ("ranks", "node", "row"),
    [(64, 8, 8), (1024, 8, 32), (16, 8, 4), (8, 8, 2), (512, 8, 16), (7, 7, 1)],
)
def test_the_most_square_grid(ranks: int, node: int, row: int) -> None:
    assert square_row(ranks, node) == row


def test_crossovers_are_where_two_algorithms_take_the_same() -> None:
    x = net(64)
    result = crossovers(x, 2.0**10, 2.0**33)
    assert [c.above for c in result[:-1]] == [c.below for c in result[1:]]
    for c in result:
        taken = seconds(x, np.array([c.bytes]))
        assert taken[c.below] == pytest.approx(taken[c.above], rel=1e-4)
        assert fastest(x, np.array([0.9 * c.bytes, 1.1 * c.bytes])) == [c.below, c.above]
        assert taken[c.above][0] == pytest.approx(
            min(v[0] for k, v in taken.items() if k != "server"), rel=1e-4
        )


def test_more_ranks_move_the_crossover_to_larger_messages() -> None:
    # latency decides among more ranks for longer: where the ring or tree takes over from halving
    # and doubling
    at = [crossovers(net(n), 2.0**10, 2.0**33) for n in (64, 256, 1024)]
    from_halving = [next(c.bytes for c in value if c.below == "halving") for value in at]
    assert from_halving == sorted(from_halving)
    assert from_halving[-1] > 1.5 * from_halving[0]


def test_crossover_of_doubling_and_halving_in_closed_form() -> None:
    # k steps of S against 2 k steps and 2 (n-1)/n S: S = k a B / (k - 2 (n-1)/n), 8 ranks, 1 us, 10
    # GB/s: 30 / (3 - 1.75) = 24 kB
    size = 3 * 1e-6 * 10e9 / (3 - 1.75)
    assert float(recursive_doubling_s(size, 8, 8, **FLAT)) == pytest.approx(
        float(halving_doubling_s(size, 8, 8, **FLAT))
    )


def test_rings_across_nodes_keep_their_volume() -> None:
    still = {"base_s": 0.0, "latency_s": 0.0, "hop_s": 0.0, "node_bytes_per_s": 10e9}
    for ranks in (2.0, 16.0, 1024.0):
        assert float(ring_inter_s(1e9, ranks, ranks / 2, 2, **still)) == pytest.approx(
            float(least_sent_bytes(1e9, ranks)) / 10e9
        )


def test_the_command_answers() -> None:
    document = dpplan(
        "allreduce", "--gpu", "h100", "--gpus", 64, "--bytes", "25MiB,1GB", "--json"
    ).json()
    assert [row["bytes"] for row in document["sizes"]] == [25 * 2**20, 1e9]
    assert document["cluster"]["nodes"] == 8
    for row in document["sizes"]:
        candidates = {k: v for k, v in row["seconds"].items() if k != "server"}
        assert row["fastest"] == min(candidates, key=candidates.__getitem__)
        assert row["bus_bytes_per_s"] == pytest.approx(
            2 * 63 / 64 * row["bytes"] / row["seconds"][row["fastest"]]
        )
    named = {
        algorithm["name"] for algorithm in document["algorithms"] if algorithm["refused"] is None
    }
    assert named == set(document["sizes"][0]["seconds"])
    assert [row["ranks"] for row in document["map"]["rows"]] == [2, 4, 8, 16, 32, 64]
    # eight servers have the cards of eight nodes and keep up with their workers, one has an eighth
    # of them
    answer = dpplan(
        "allreduce", "--gpu", "h100", "--gpus", 64, "--bytes", "1GB", "--servers", 1, "--json"
    ).json()
    assert answer["sizes"][0]["seconds"]["server"] == pytest.approx(
        8 * document["sizes"][1]["seconds"]["server"], rel=0.01
    )


def test_the_table_is_printed() -> None:
    out = dpplan("allreduce", "--gpu", "a100", "--gpus", 16, "--plain").stdout
    assert "Fastest by size and ranks" in out
    assert "left out: switch" in out
    rows = [line for line in out.splitlines() if line.strip().startswith("16 ") and "2  " in line]
    assert rows


EIGHT = ["--gpu", "h100", "--gpus", "8"]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--gpu", "h100"], "--gpus"),
        (["--gpu", "h100", "--gpus", "1"], "--gpus"),
        (["--gpus", "8"], "--gpu"),
        ([*EIGHT, "--bytes", "large"], "--bytes"),
        ([*EIGHT, "--bytes", "0"], "--bytes"),
        ([*EIGHT, "--bytes", "1GB/s"], "--bytes"),
        ([*EIGHT, "--servers", "0"], "--servers"),
        (["--gpu", "h100", "--gpus", "9"], "--gpus"),
    ],
)
def test_a_wrong_request_names_its_option(words: list[str], field: str) -> None:
    answer = dpplan("allreduce", *words, "--json")
    assert answer.status == 2
    assert answer.json()["error"]["field"] == field
    assert field in answer.stderr
