"""The ledger of memory against bytes that frameworks' own code allocates in a training step, as
`python -m benchmarks.frameworks` counted them on fake tensors."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from benchmarks.frameworks import compare, setting
from benchmarks.frameworks.compare import Difference
from planner import api
from planner.inputs.huggingface.code import JOINED_ROTARY, WIDE_NORMS
from planner.inputs.huggingface.typed import TYPES

ROOT = Path(__file__).parents[1]
SAMPLE = 40  # rows of a framework that every run evaluates
# median and 95th percentile of the error of the peak
WITHIN = {
    "transformers": (0.002, 0.02),
    "peft": (0.01, 0.025),
    "accelerate": (0.002, 0.02),
    "trl": (0.01, 0.07),
}


@cache
def differences(framework: str) -> list[Difference]:
    rows = [row for row in setting.read() if row[0].framework == framework]
    return compare.differences(setting.fewer(rows, SAMPLE))


@pytest.mark.parametrize("framework", WITHIN)
def test_peaks_are_those_of_the_frameworks(framework: str) -> None:
    errors = [pair.error("peak") for pair in differences(framework)]
    assert len(errors) == SAMPLE
    middle, high, _ = compare.quantiles(errors)
    limits = WITHIN[framework]
    assert middle <= limits[0]
    assert high <= limits[1]


@pytest.mark.parametrize("framework", WITHIN)
def test_states_are_those_of_the_frameworks(framework: str) -> None:
    """Weights, gradients and moments; steps of AdamW, and padding of shards, are left out."""
    for pair in differences(framework):
        for line in ("parameters", "gradients", "states", "step"):
            assert abs(pair.error(line)) < 0.003, (line, pair.setting)


def forward_per_token(**given: object) -> float:
    """Bytes that a layer of Llama 3.1 8B keeps per token."""
    values = {"model": "llama-3.1-8b", "gpu": "b300", "gpus": 1, "stack": "hf-trainer"}
    values |= {"micro_batch": 1, "global_batch": 1, "seq_len": 1024, "recompute": "none"}
    memory = api.estimate(api.read_options({**values, **given}), brief=True).memory
    return sum(leaf.bytes for leaf in memory.layer_activations) / 1024


def test_a_layer_under_autocast_by_hand() -> None:
    """h 4096, f 14336, 32 heads and 8 of keys and values. In 16 bit: two norms keep an fp32 copy of
    their input and the normed element (6 h each), attention and MLP one input each (2 h), queries,
    keys, values and the output (2 h, 2 h / 4 twice, 2 h), the log-sum-exp (4 per head), gate, up,
    silu and product (2 f each). Autocast over weights in fp32 makes the normed element fp32, and a
    copy of their input for each of the five matrices."""
    h, f, heads = 4096.0, 14336.0, 32.0
    statistics = 2 * 4.0
    narrow = 12 * h + 4 * h + 5 * h + 4 * heads + 8 * f + statistics
    assert forward_per_token(state_precision="bf16") == pytest.approx(narrow)
    assert forward_per_token() == pytest.approx(narrow + 4 * h + 6 * h)


def test_a_base_in_fp32_has_a_wide_stream() -> None:
    """Adapters over a base in 16 bit leave the residual stream in 16 bit."""
    adapters = {"lora": 16, "lora_targets": "all-linear"}
    assert forward_per_token(**adapters) < forward_per_token()


def test_types_with_code_of_their_own_are_known() -> None:
    assert TYPES.keys() >= WIDE_NORMS
    assert TYPES.keys() >= JOINED_ROTARY


@pytest.mark.skipif("FRAMEWORK_TESTS" not in os.environ, reason="FRAMEWORK_TESTS=1 ./check")
@pytest.mark.parametrize("verb", ["check", "real"])
def test_the_frameworks_allocate_what_was_recorded(verb: str) -> None:
    command = [sys.executable, "-m", "benchmarks.frameworks", verb]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
