"""Shards, volumes and the optimizer: the tables of the ZeRO paper and cases worked by hand."""

from __future__ import annotations

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.estimate import evaluate
from planner.estimate.gradients import tensors
from planner.formulas.data_parallel import (
    cpu_step_s,
    optimizer_step_s,
    ring_volume_bytes,
    shard_count,
    streamed_state_s,
    whole_tensor_shards,
)
from planner.formulas.memory import state_bytes

MIXED_ADAM = {
    "parameters": (3.0, 2.0),
    "gradients": (2.0, 2.0),
    "optimizer": (1.0, 12.0),
}  # (sharded from stage, bytes)


def states(parameters: float, zero: float, ranks: float) -> float:
    """Bytes per rank of 2 B parameters, 2 B gradients and 12 B of Adam."""
    return sum(
        float(state_bytes(parameters, size, shard_count(zero, level, ranks)))
        for level, size in MIXED_ADAM.values()
    )


@pytest.mark.parametrize(
    ("ranks", "gigabytes"),
    [
        (1, (120, 120, 120, 120)),
        (4, (120, 52.5, 41.3, 30)),
        (16, (120, 35.6, 21.6, 7.5)),
        (64, (120, 31.4, 16.6, 1.88)),
        (256, (120, 30.4, 15.4, 0.47)),
        (1024, (120, 30.1, 15.1, 0.12)),
    ],
)
def test_zero_table_of_7_5_billion_parameters(ranks: int, gigabytes: tuple[float, ...]) -> None:
    # Rajbhandari et al. 2020 (arXiv 1910.02054), figure 1 and table 1: per-device memory of a 7.5B
    # model
    for zero, printed in enumerate(gigabytes):
        assert states(7.5e9, zero, ranks) / 1e9 == pytest.approx(
            printed, abs=0.0501 if printed > 2 else 0.005
        )


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_a_state_is_cut_from_its_level_on(zero: int) -> None:
    assert [float(shard_count(zero, level, 8.0)) for level in (1.0, 2.0, 3.0)] == [
        8.0 if zero >= n else 1.0 for n in (1, 2, 3)
    ]


@given(parameters=st.floats(1e6, 1e12), ranks=st.integers(1, 10000))
def test_more_sharding_never_needs_more(parameters: float, ranks: int) -> None:
    sizes = [states(parameters, zero, ranks) for zero in (0, 1, 2, 3)]
    assert sizes == sorted(sizes, reverse=True)
    assert states(parameters, 3, ranks) == pytest.approx(16 * parameters / ranks)
    assert all(
        states(parameters, zero, ranks + 1) <= states(parameters, zero, ranks)
        for zero in (0, 1, 2, 3)
    )


def test_volume() -> None:
    # 1e9 parameters in 2 B on 4 ranks: an all-reduce sends 2 * 3/4 * 2 GB = 3 GB, ZeRO-3 three
    # quarters of 2 GB three times
    zero = np.array([0.0, 1.0, 2.0, 3.0])
    assert ring_volume_bytes(1e9, zero, 4.0, 2.0).tolist() == pytest.approx([3e9, 3e9, 3e9, 4.5e9])
    assert float(ring_volume_bytes(1e9, 3.0, 1.0, 2.0)) == 0.0


@given(ranks=st.integers(2, 100000), zero=st.sampled_from([0.0, 1.0, 2.0]))
def test_zero_3_moves_half_as_much_again_as_ddp(ranks: int, zero: float) -> None:
    # arXiv 1910.02054, section 7: 3 Psi against 2 Psi
    assert float(
        ring_volume_bytes(1e9, 3.0, ranks, 2.0) / ring_volume_bytes(1e9, zero, ranks, 2.0)
    ) == pytest.approx(1.5)


def test_optimizer_on_the_gpu_and_on_the_cpu() -> None:
    # 1e9 parameters, 46 B each, at three quarters of 2 TB/s: 30.667 ms
    assert optimizer_step_s(
        1e9, 46.0, memory_bytes_per_s=2e12, elementwise_frac=0.75
    ) == pytest.approx(30.6667e-3, rel=1e-5)
    # 16 B each over a link of 20 GB/s: 0.8 s; a node of 8e9 parameters at 0.4e9 a second: 20 s
    assert streamed_state_s(1e9, host_bytes_per_s=20e9) == pytest.approx(0.8)
    assert cpu_step_s(8e9, 0.4e9) == pytest.approx(20)


def test_broadcasts_of_updated_tensors_are_one_per_rank_that_has_one() -> None:
    """A step of InternEvo across nodes is longer by 5 ms per rank up to its number of tensors, and
    inside a node by nothing."""
    software = plans.stack("internevo")
    silent = software.model_copy(
        update={"overlap": software.overlap.model_copy(update={"broadcast": None})}
    )

    def more(gpus: int) -> float:
        plan = plans.plan(gpus=gpus, global_batch=1024, software="internevo")
        rows = plans.rows(gpus, {"zero": 1})
        before = plan.model_copy(update={"stack": silent})
        parts = (
            evaluate(entry, rows).time.components["data_parallel"][0] for entry in (plan, before)
        )
        return float(next(parts) - next(parts))

    count = len(tensors(plans.model(), software.fusion.joint_qkv, software.fusion.joint_gate))
    assert more(8) == 0.0
    assert more(16) == pytest.approx(16 * 5e-3)
    assert more(512) == pytest.approx(count * 5e-3)


def test_whole_tensors_are_dealt_to_the_rank_with_least() -> None:
    """Two ranks: 6, then 3 and 3 beside it, and 2 to the first of equals; of many ranks the fullest
    has the largest tensor."""
    shares = whole_tensor_shards([3.0, 6.0, 2.0, 3.0], np.array([1.0, 2.0, 8.0]))
    assert shares.tolist() == pytest.approx([1.0, 14 / 8, 14 / 6])
    assert whole_tensor_shards([1.0] * 64, np.array([16.0])).tolist() == [16.0]
