"""Terms of the composition that are small in most steps, worked by hand."""

from __future__ import annotations

import numpy as np
import plans
import pytest

from planner.estimate import step, sync
from planner.estimate.all_reduce import square_row
from planner.formulas.compression import codec_s
from planner.formulas.data_parallel import backward_volume_bytes
from planner.formulas.generation import one_shot_all_reduce_s
from planner.formulas.inference import kv_cache_bytes
from planner.formulas.memory import reserved_bytes
from planner.formulas.overlap import offload_exposed_s


def test_codes_of_zero_pp_are_written_and_read_once_on_each_side() -> None:
    """qwZ makes a byte of two and two of a byte again: 2 (2 + 1) bytes moved per element, at what
    elementwise kernels get of the memory's 2 TB/s."""
    of = plans.plan(software="deepspeed", zeropp=("qwz",))
    m = plans.numbers(of, memory_bandwidth=2e12, elementwise_frac=0.75)
    assert sync._recode_s(of, m, "qwz", 2.0, 1.0) == pytest.approx(6 / 1.5e12)
    assert sync._recode_s(of, m, "qgz", 2.0, 0.5) == 0.0  # is not asked for


@pytest.mark.parametrize(
    ("vpp", "microbatches", "beside"), [(1, 8.0, 1.0), (2, 8.0, 2.5), (2, 2.0, 1.5)]
)
def test_gradients_are_reduced_beside_half_of_what_is_in_flight(
    vpp: int, microbatches: float, beside: float
) -> None:
    """With chunks a rank ends those in flight (pp = 4, or fewer) one after another: the first is
    beside none of them, the last beside all, (1 + n) / 2 in the mean."""
    of = plans.plan()
    assert of.stack.overlap.interleaved_window
    schedule = "interleaved" if vpp > 1 else "1f1b"
    rows = plans.rows(8, {"pp": 4, "vpp": vpp, "schedule": schedule})
    assert step._window_share(of, rows, np.array([microbatches])) == pytest.approx(beside)


def test_what_comes_and_goes_leaves_gaps() -> None:
    assert reserved_bytes(10.0, 4.0, 0.2) == pytest.approx(10 + 4 + 0.8)


def test_a_step_of_each_stage_of_zero_sends_what_the_paper_says() -> None:
    """8 ranks, 4 micro-batches, 100 bytes of weights and 100 of gradients: 7/8 of 2 G, G, m G and
    m (G + W)."""
    sent = [float(backward_volume_bytes(100.0, 100.0, z, 8.0, 4.0)) for z in (0, 1, 2, 3)]
    assert sent == pytest.approx([175.0, 87.5, 350.0, 700.0])


def test_a_cache_keeps_a_window_of_a_windowed_layer() -> None:
    """64 elements of 2 bytes: 3 layers of 1,000 tokens and 2 of 100."""
    assert kv_cache_bytes(1000.0, 64.0, 3.0, 2.0, 100.0, 2.0) == 128 * (3000 + 200)


def test_a_copy_shares_its_link_with_collectives_of_the_layer() -> None:
    """A layer of 3 s, a copy of 2 s: nothing shows alone, 1 s where 2 s of collectives take the
    link; no more than the layer has are counted."""
    exposed = [float(offload_exposed_s(3.0, 2.0, shared)) for shared in (0.0, 2.0, 9.0)]
    assert exposed == [0.0, 1.0, 2.0]


def test_codes_are_made_at_the_memory_s_pace_and_the_flop_s() -> None:
    rates = {"memory_bytes_per_s": 200.0, "stream_frac": 0.5, "rate_flop_per_s": 10.0}
    assert codec_s(300.0, 20.0, **rates) == pytest.approx(3 + 2)


def test_every_rank_reads_the_message_of_every_other() -> None:
    seconds = one_shot_all_reduce_s(100.0, np.array([1, 4]), base_s=1.0, bytes_per_s=50.0)
    assert seconds == pytest.approx([0.0, 1 + 3 * 2])


@pytest.mark.parametrize(("ranks", "per_node", "row"), [(64, 8, 8), (32, 8, 4), (128, 16, 8)])
def test_a_grid_is_as_square_as_nodes_allow(ranks: int, per_node: int, row: int) -> None:
    """Of rows that are as far from the root the shorter."""
    assert square_row(ranks, per_node) == row
