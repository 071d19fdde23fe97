"""From a step to a run: throughput, utilisation, goodput, energy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.formulas import run_level
from planner.formulas.run_level import checkpoint_interval_s, energy_j, goodput, run_s, tokens_per_s, utilisation

LLAMA_3 = 16384  # GPUs


def test_throughput_and_utilisation() -> None:
    # 1024 sequences of 4096 tokens in 8 s; 8 GPUs of 312 TFLOP/s doing 1.248e15 FLOP in a second are half busy
    assert tokens_per_s(1024.0, 4096.0, 8.0) == 524_288
    assert utilisation(1.248e15, 8.0, 312e12, 1.0) == pytest.approx(0.5)


def test_checkpoint_interval() -> None:
    # Young 1974: sqrt(2 * 60 s * 30000 s) = 1897 s
    assert float(checkpoint_interval_s(60.0, 30000.0)) == pytest.approx(1897.37, abs=0.01)


@given(cost=st.floats(1, 600), mtbf=st.floats(1e5, 1e8))
def test_no_other_interval_loses_less(cost: float, mtbf: float) -> None:
    def lost(interval: float) -> float:
        return cost / interval + interval / 2 / mtbf

    best = float(checkpoint_interval_s(cost, mtbf))
    assert lost(best) <= min(lost(0.9 * best), lost(1.1 * best))
    assert 1 - float(goodput(1.0, mtbf, cost, 0.0)) == pytest.approx(lost(best))


def test_goodput_by_hand() -> None:
    # 100 GPUs that fail every 5e6 s each, one of them every 50000 s; checkpoints of 100 s every sqrt(2 * 100 * 50000) = 3162 s:
    # 100/3162 + (1581 + 600)/50000 = 0.03162 + 0.04362 lost
    assert float(goodput(100.0, 5e6, 100.0, 600.0)) == pytest.approx(1 - 0.031623 - 0.043623, abs=1e-5)


@given(gpus=st.integers(1, 10**6), cost=st.floats(0.1, 3600), restart=st.floats(0, 1e5))
def test_goodput_is_a_share_and_falls_with_the_number_of_gpus(gpus: int, cost: float, restart: float) -> None:
    here = float(goodput(gpus, run_level.MTBF_GPU_S, cost, restart))
    assert 0 < here <= 1
    assert float(goodput(2 * gpus, run_level.MTBF_GPU_S, cost, restart)) <= here
    assert float(goodput(gpus, 1e30, cost, restart)) == pytest.approx(1.0)


def test_llama_3_failed_every_three_hours() -> None:
    # arXiv 2407.21783, section 3.3.4: 419 unexpected interruptions in 54 days on 16,384 GPUs
    assert pytest.approx(3.1, abs=0.05) == run_level.MTBF_GPU_S / LLAMA_3 / 3600


def test_llama_3_goodput_with_a_writer_that_hardly_stops_training() -> None:
    # arXiv 2407.21783, section 3.3.4: more than 90 % effective training time. A pause of 6.3 s per checkpoint is what an
    # asynchronous writer was measured to take for a 7B model (pytorch.org/blog/reducing-checkpointing-times)
    assert 0.9 < float(goodput(LLAMA_3, run_level.MTBF_GPU_S, 6.3, run_level.RESTART_S)) < 0.95


def test_llama_3_goodput_with_the_assumed_constants() -> None:
    constants = run_level.MTBF_GPU_S, run_level.CHECKPOINT_S, run_level.RESTART_S
    assert float(goodput(LLAMA_3, *constants)) > 0.9


def test_run_and_energy() -> None:
    # 2e12 tokens at 1e6 a second, 80 % of the time: 2.5e6 s
    assert run_s(2e12, 1e6, 0.8) == pytest.approx(2.5e6)
    # Llama 2 70B took 1,720,320 GPU-hours of 400 W (arXiv 2307.09288, table 2): 688 MWh at the board if always at the limit
    assert energy_j(1.0, 400.0, 1.0, 1.0, 1_720_320 * 3600) / 3.6e9 == pytest.approx(688.1, abs=0.1)
    # 1000 GPUs at 85 % of 700 W and 40 % more around them for an hour: 833 kWh
    assert energy_j(1000.0, 700.0, 0.85, 1.4, 3600.0) / 3.6e6 == pytest.approx(833)
