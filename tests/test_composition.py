"""Terms of the composition that are small in most steps, worked by hand."""

from __future__ import annotations

import numpy as np
import plans
import pytest

from planner.estimate import step, sync, waiting
from planner.estimate.all_reduce import square_row
from planner.estimate.layer.collectives import module_collectives
from planner.estimate.layer.head import head_s
from planner.estimate.layer.shape import key_of, local_shape
from planner.estimate.memory import activations
from planner.estimate.memory.timeline import one_stage
from planner.estimate.stages import repeated, stage_split
from planner.estimate.trained import backward_split, weights_of
from planner.formulas.compression import codec_s
from planner.formulas.data_parallel import backward_volume_bytes
from planner.formulas.generation import one_shot_all_reduce_s
from planner.formulas.inference import kv_cache_bytes
from planner.formulas.memory import reserved_bytes
from planner.formulas.optimizers import _rotated
from planner.formulas.overlap import offload_exposed_s
from planner.formulas.stages import contents
from planner.ledger import total
from planner.mechanisms.zeropp import Zeropp
from planner.specs.data import LengthsSpec
from planner.specs.layers import memory_kinds
from planner.specs.parts.mlp import Mlp


def test_codes_of_zero_pp_are_written_and_read_once_on_each_side() -> None:
    """qwZ makes a byte of two and two of a byte again: 2 (2 + 1) bytes moved per element, at what
    elementwise kernels get of the memory's 2 TB/s."""
    qwz = Zeropp(("qwz",))
    plan = plans.plan(software="deepspeed", mechanisms=(qwz,))
    m = plans.numbers(plan, memory_bandwidth=2e12, elementwise_frac=0.75)
    codes = qwz.coded("weights")
    assert codes is not None
    assert sync._recode_s(m, codes, 2.0) == pytest.approx(6 / 1.5e12)
    assert qwz.coded("gradients") is None  # is off


@pytest.mark.parametrize(
    ("vpp", "microbatches", "beside"), [(1, 8.0, 1.0), (2, 8.0, 2.5), (2, 2.0, 1.5)]
)
def test_gradients_are_reduced_beside_half_of_what_is_in_flight(
    vpp: int, microbatches: float, beside: float
) -> None:
    """With chunks a rank ends those in flight (n = pp = 4, or fewer) one after another: the first
    reduces beside one, the last beside n, (1 + n) / 2 in the mean."""
    plan = plans.plan()
    assert plan.stack.overlap.interleaved_window
    schedule = "interleaved" if vpp > 1 else "1f1b"
    rows = plans.rows(8, {"pp": 4, "vpp": vpp, "schedule": schedule})
    assert step._window_share(plan, rows, np.array([microbatches])) == pytest.approx(beside)


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
    """A layer of 3 s, a copy of 2 s: nothing is exposed without collectives, 1 s beside 2 s of
    collectives on the link; no more than the layer has are counted."""
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
    """Two rows equally far from the square root of the ranks: the shorter is taken."""
    assert square_row(ranks, per_node) == row


def test_tables_of_words_are_divided_among_tensor_parallel_ranks() -> None:
    """Embedding and head of 4,096 words and 512 dimensions, 10 bytes moved per weight, at what
    copies get of the memory's 1 TB/s: 2 * 4096 * 512 * 10 bytes, and half of them."""
    plan = plans.plan(plans.model(tied_embeddings=False))
    speed = {"memory_bandwidth": 1e12, "stream_frac": 0.5, "kernel_gap": 0.0}
    m = plans.numbers(plan, **speed, weight_bytes_moved=10.0)
    c = plans.rows(8, {}, {"tp": 2})
    seconds = head_s(local_shape(plan, **key_of(c)), m)["memory_bound/weights"]
    whole = 2 * 4096 * 512 * 10 / 0.5e12
    assert seconds == pytest.approx([whole, whole / 2])


def test_a_dense_mlp_keeps_an_input_of_its_own_alone() -> None:
    """1,024 tokens of 512 dimensions in 16 bit; nothing where another product keeps the same."""
    plan, c, part = plans.plan(), plans.rows(8, {}), Mlp(ffn_hidden=1408)
    inputs = [
        float(activations._dense_activations(plan, c, part, option)["mlp/input"][0])
        for option in (True, False)
    ]
    assert inputs == [1024 * 512 * 2, 0]


def test_the_input_of_a_module_s_projection_is_twice_as_wide_as_its_output() -> None:
    """Hidden state and embedding beside each other: 1,024 tokens of 2 * 512 dimensions in 16 bit;
    the output is gathered once, the gradient of the input reduced once."""
    plan, c = plans.plan(plans.model(mtp=1)), plans.rows(8, {}, {"tp": 2})
    output, _, _, gradient = module_collectives(local_shape(plan, **key_of(c)), plans.numbers(plan))
    assert (output.operation, gradient.operation) == ("all_gather", "all_reduce")
    assert output.tensor_bytes[1] == 1024 * 512 * 2
    assert gradient.tensor_bytes[1] == 1024 * 1024 * 2
    assert output.forward.tolist() == gradient.backward.tolist() == [0, 1]


def test_an_optimizer_with_a_factor_per_side_moves_both() -> None:
    """A matrix of 8 by 4: 16 bytes per element, and 12 per element of factors of 8 by 8 and of 4
    by 4, here in one block."""
    result = _rotated(1.0, 1e9, 1e9, 0.0)(np.array([8.0]), np.array([4.0]))
    assert result.moved_bytes == pytest.approx([16 * 32 + 12 * (64 + 16)])


def test_documents_of_half_a_row_leave_half_of_it_to_padding() -> None:
    """All of 512 tokens in rows of 1,024: one row of the longest of its batch has no padding."""
    spec = LengthsSpec(mean_tokens=512, sigma=0.0, packing="padded")
    plan = plans.plan().model_copy(update={"lengths": spec})
    result = waiting._lengths(plan, spec, plans.rows(8, {}), 1.0)
    assert (result.mean_tokens, result.padded_frac) == pytest.approx((512, 0.5))
    assert (result.padded_to_longest_frac, result.bucketed_frac) == pytest.approx((1, 1))
    assert result.useful_tokens_per_s == pytest.approx(64 * 512)


def test_a_module_keeps_what_its_norms_and_its_projection_read() -> None:
    """Two norms of 512 dimensions and a product of twice as many, in 16 bit, for 1,024 tokens,
    beside the layer and the second loss that a module has as well."""
    c, stage = plans.rows(8, {}), np.zeros(1)

    def at_loss(modules: int) -> float:
        plan = plans.plan(plans.model(mtp=modules))
        split = stage_split(plan, c, stage)
        phase = one_stage(plan, c, weights_of(plan, c), stage, split).phases[2]
        return float(phase["activations"][0])

    plan = plans.plan()
    layer = float(
        total(activations.kind_activations(plan, c, memory_kinds(plan.model).kinds[0], False))[0]
    )
    head = float(activations.head_activations(plan, c)[0])
    ours = (2 * 512 + 2 * 512) * 2 * 1024
    assert at_loss(1) - at_loss(0) == pytest.approx(layer + head + ours)


def test_blocks_are_divided_with_embedding_norm_and_head_among_them() -> None:
    """15 blocks on 3 stages, 5 each: the embedding beside 4 layers, norm and head beside 3."""
    plan = plans.plan(plans.model(layers=12))
    stack = plan.stack.model_copy(update={"layer_split": "blocks"})
    result = contents(plan.model_copy(update={"stack": stack}), 3, 1)
    assert result.layers.reshape(-1).tolist() == [4, 5, 3]


def test_a_repeated_layer_adds_all_but_the_input_that_was_kept() -> None:
    plan, c, stage = plans.plan(), plans.rows(8, {"recompute": "full"}), np.zeros(1)
    split = backward_split(plan, stage_split(plan, c, stage))
    result = activations.kept(plan, c, split, repeated(plan, c, stage))
    assert result.input == pytest.approx([1024 * 512 * 2])
    assert result.stage == pytest.approx(8 * result.input)
    assert result.working == pytest.approx(result.whole - result.input)
