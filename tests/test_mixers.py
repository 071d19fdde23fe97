"""Rates of linear attention against published times that no rate was fitted on."""

from __future__ import annotations

import numpy as np
import pytest
from plans import plan

from planner.estimate.layer.mixers import scan_s, short_convolution_s, sparse_attention_s
from planner.estimate.layer.mixers import sparse_index_s as index_s
from planner.estimate.layer.shape import BothWays
from planner.estimate.machine import machine
from planner.estimate.machine.mixers import CHAINS, chain
from planner.formulas.kernels import mixer_s, mixer_work_s
from planner.inputs import catalog
from planner.ledger import Array
from planner.specs.hardware import GpuSpec

CHUNK, WIDTH = 64.0, 128.0  # tokens; of all heads below
# GPU, operation, sequences, tokens of one, value heads, key heads, ms forward
FORWARD = {
    "fla 0.5.1, QwenLM/FlashQLA benchmark/benchmark_results_H200.txt": [
        ("h200-sxm-141gb", "gated_delta", 1, 32768, 8, 2, 0.902),
        ("h200-sxm-141gb", "gated_delta", 1, 8192, 8, 2, 0.234),
        ("h200-sxm-141gb", "gated_delta", 4, 8192, 16, 4, 0.935),
        ("h200-sxm-141gb", "gated_delta", 1, 32768, 32, 8, 1.885),
        ("h200-sxm-141gb", "gated_delta", 1, 8192, 32, 8, 0.466),
        ("h200-sxm-141gb", "gated_delta", 1, 32768, 64, 16, 3.331),
        ("h200-sxm-141gb", "gated_delta", 4, 8192, 64, 16, 3.362),
    ],
    "fla 0.5.1, QwenLM/FlashQLA benchmark/benchmark_results_GB200.txt": [
        ("gb200-186gb", "gated_delta", 1, 32768, 8, 2, 1.016),
        ("gb200-186gb", "gated_delta", 1, 8192, 16, 4, 0.333),
        ("gb200-186gb", "gated_delta", 4, 8192, 32, 8, 1.743),
        ("gb200-186gb", "gated_delta", 1, 32768, 64, 16, 2.943),
        ("gb200-186gb", "gated_delta", 1, 8192, 64, 16, 0.755),
    ],
    "fla, MoonshotAI/FlashKDA BENCHMARK_H20.md": [
        ("h20-96gb", "kda", 1, 8192, 96, 96, 4.5052),
        ("h20-96gb", "kda", 1, 8192, 64, 64, 2.9587),
        ("h20-96gb", "kda", 8, 1024, 96, 96, 4.4668),
    ],
    "fla, MoonshotAI/FlashKDA BENCHMARK_TRAIN_RTX5090.md": [
        ("rtx5090", "kda", 1, 8192, 96, 96, 5.4185),
        ("rtx5090", "kda", 1, 8192, 64, 64, 3.5908),
    ],
}
# the same sources: GPU, operation, sequences, tokens of one, value heads, key heads, ms backward
BACKWARD = [
    ("h200-sxm-141gb", "gated_delta", 1, 32768, 32, 16, 5.697),
    ("h200-sxm-141gb", "gated_delta", 1, 8192, 32, 16, 1.444),
    ("h200-sxm-141gb", "gated_delta", 8, 4096, 32, 16, 5.781),
    ("h200-sxm-141gb", "gated_delta", 1, 8192, 8, 4, 0.722),
    ("gb200-186gb", "gated_delta", 1, 32768, 32, 32, 5.714),
    ("gb200-186gb", "gated_delta", 1, 8192, 16, 16, 1.013),
    ("rtx5090", "kda", 1, 8192, 96, 96, 18.0492),
]


def _seconds(row: tuple[str, str, int, int, int, int, float]) -> BothWays[Array]:
    gpu, operation, sequences, seq, heads, key_heads, _ = row
    flop = 2 * heads * WIDTH * (5 * CHUNK + 3 * WIDTH)
    gates = key_heads * WIDTH if operation == "kda" else heads
    elements = 2 * WIDTH * (heads + key_heads) + gates + heads
    m, tokens = machine(plan(gpu=gpu, precision="bf16")), sequences * seq
    architecture = catalog.load("gpus", GpuSpec, gpu).architecture
    return scan_s(m, architecture, operation, tokens * flop, tokens * 2 * elements, float(seq))


@pytest.mark.parametrize("source", list(FORWARD))
def test_forward_against_published_times(source: str) -> None:
    errors = np.array([_seconds(row).forward / (row[-1] * 1e-3) - 1 for row in FORWARD[source]])
    assert np.abs(errors).mean() < 0.12, errors
    assert np.abs(errors).max() < 0.2, errors


def test_backward_against_published_times() -> None:
    errors = np.array([_seconds(row).backward / (row[-1] * 1e-3) - 1 for row in BACKWARD])
    assert np.abs(errors).mean() < 0.15, errors
    assert np.abs(errors).max() < 0.2, errors


def test_few_heads_wait_for_the_chunks_of_a_sequence_in_turn() -> None:
    # 1 s of FLOP and 1 s of bytes, half of it in the kernel in turn, which 3 s of steps hold up
    work = mixer_work_s(1e12, 2e12, 1e12, 2e12)
    assert work == pytest.approx(2.0)
    kept = mixer_s(work, 3.0, 5.0, ordered_frac=0.5, gap_s=0.1)
    assert kept == pytest.approx(1 + (1 + 3.0**4) ** 0.25 + 0.5)
    assert mixer_s(work, 0.0, 0.0, ordered_frac=0.5, gap_s=0.1) == pytest.approx(2.0)
    short = ("h200-sxm-141gb", "gated_delta", 8, 4096, 2, 1, 0.0)
    long = ("h200-sxm-141gb", "gated_delta", 1, 32768, 2, 1, 0.0)
    assert _seconds(long).forward > 2 * _seconds(short).forward


def test_architectures_without_a_table_say_whose_they_have() -> None:
    share, step = CHAINS["kda"].on("cdna3")
    assert (share.kind, step.kind) == ("assumed", "assumed")
    assert float(share) == float(CHAINS["kda"].share["hopper"])
    assert "cdna3" in share.source
    assert chain("never heard of").on("hopper")[0].kind == "assumed"


def test_short_convolution_and_sparse_attention_on_hopper() -> None:
    m = machine(plan(gpu="h100-sxm5-80gb", precision="bf16"))
    # 64 % of 3.35 TB/s; 60 % of 989 TFLOP/s at the clock of training
    moved = short_convolution_s(m, "hopper", 1e12).forward
    assert 1e12 / moved == pytest.approx(0.64 * 3.35e12, rel=1e-4)
    flop = 64 * 2048 * 2 * (576 + 512) * 65536.0
    result = sparse_attention_s(m, "hopper", flop)
    clock = float(m.sustained_clock)
    assert flop / result.forward == pytest.approx(0.60 * 989e12 * clock, rel=1e-3)
    assert result.backward == pytest.approx(2.5 * result.forward, rel=1e-3)
    # the choice of keys of 16k tokens took 691 to 700 us on H100 and H200 (GLM-5 tables)
    pairs = 16384.0**2 / 2
    with_choice = index_s(m, "hopper", pairs, 0.0, 16384.0 - 2048, 2048.0).forward
    without = index_s(m, "hopper", pairs, 0.0, 0.0, 0.0).forward
    assert 0.4e-3 < with_choice - without < 0.7e-3
