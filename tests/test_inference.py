"""Memory of generating text with the trained model: the cache by hand and by published figures, and
what fits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from command import dpplan
from hypothesis import given
from hypothesis import strategies as st
from plans import model
from plans import plan as small_plan

from planner.estimate.inference import device_bytes, sequence_bytes, serving
from planner.formulas.inference import kv_cache_bytes, working_bytes
from planner.inputs import catalog
from planner.specs.model import ModelSpec
from planner.specs.plan import Plan


def shipped(name: str) -> ModelSpec:
    return catalog.load("models", ModelSpec, name)


@pytest.mark.parametrize(
    ("name", "kib"),
    [
        ("llama-2-7b", 512),  # 2 x 32 layers x 4096 x 2 B
        ("llama-2-70b", 320),  # 2 x 80 x 8 heads x 128 x 2 B
        ("llama-3.1-405b", 504),  # 2 x 126 x 8 x 128 x 2 B
        (
            "deepseek-v3",
            68.625,
            # 61 layers x (512 + 64) x 2 B: 70 KB in DeepSeek-V3's hardware paper (arXiv 2505.09343)
        ),
    ],
)
def test_bytes_of_a_token(name: str, kib: float) -> None:
    assert float(sequence_bytes(shipped(name), 1.0)) == kib * 1024


def test_cache_and_working_memory_by_hand() -> None:
    # 2 full and 2 windowed layers of 10 elements, 100 tokens, a window of 30: 2 B x 10 x (200 + 60)
    assert float(kv_cache_bytes(100.0, 10.0, 2.0, 2.0, 30.0, 2.0)) == 5200
    # 10 tokens x 2 B x (4 x 8 + 2 x 16/2) + 4 B x 3 sequences x 100/2
    assert float(working_bytes(10.0, 8.0, 16.0, 3.0, 100.0, 2.0, 2.0)) == 10 * 2 * 48 + 600


def test_a_window_bounds_the_cache() -> None:
    gemma = shipped("gemma-2-9b")  # every second layer attends to 4096 tokens
    long, longer = (float(sequence_bytes(gemma, n * 4096)) for n in (4.0, 8.0))
    assert longer < 2 * long


def plan(job: ModelSpec | None = None, **changes: Any) -> Plan:
    """On A100 with 80 GB."""
    return small_plan(job or model(**changes))


@given(tp=st.sampled_from([1, 2, 4, 8]), batch=st.integers(1, 500), tokens=st.integers(1, 10**6))
def test_bytes_grow_with_batch_and_context_and_fall_with_gpus(
    tp: int, batch: int, tokens: int
) -> None:
    here = float(device_bytes(plan(), tp, float(batch), float(tokens)))
    assert here < float(device_bytes(plan(), tp, batch + 1.0, float(tokens)))
    assert here < float(device_bytes(plan(), tp, float(batch), tokens + 1.0))
    assert here > float(device_bytes(plan(), 2 * tp, float(batch), float(tokens)))


def test_heads_beyond_those_of_keys_are_copied() -> None:
    whole, cut = (plan(kv_heads=k) for k in (1, 8))
    first, eight = (
        float(device_bytes(whole, tp, 8.0, 1e6) - device_bytes(whole, tp, 0.0, 1e6))
        for tp in (1, 8)
    )
    assert eight == pytest.approx(first, rel=1e-3)
    first, eight = (
        float(device_bytes(cut, tp, 8.0, 1e6) - device_bytes(cut, tp, 0.0, 1e6)) for tp in (1, 8)
    )
    assert eight == pytest.approx(first / 8, rel=1e-3)


@pytest.mark.parametrize(
    "name", ["llama-2-7b", "llama-2-70b", "mixtral-8x7b", "deepseek-v3", "gpt2"]
)
def test_the_largest_batch_fits_and_one_more_does_not(name: str) -> None:
    planned = plan(shipped(name))
    result = serving(planned)
    tp = result.gpus
    assert tp is not None
    for most in result.max_batch:
        for more, fits in ((0, True), (1, False)):
            need = float(device_bytes(planned, tp, float(most.batch + more), float(most.context)))
            assert (need <= result.budget_bytes) == fits
        row = [entry for entry in result.table if entry.context == most.context]
        assert all(entry.fits == (entry.batch <= most.batch) for entry in row)
    assert result.max_batch[-1].batch >= 1
    if tp > 1:
        assert (
            float(device_bytes(planned, tp // 2, 1.0, float(planned.model.max_positions)))
            > result.budget_bytes
        )


def test_the_table_is_printed_when_asked() -> None:
    words = ["estimate", "--model", "llama-2-7b", "--gpu", "a100", "--gpus", 8, "--advice", 0]
    assert "Inference memory" not in dpplan(*words).stdout
    text = dpplan(*words, "--inference").stdout
    assert "Inference memory per GPU" in text
    assert "on 1 of these GPUs" in text
    assert "512 KiB per token" in text


def test_no_cache_is_planned_but_of_a_decoder() -> None:
    for name in ("bert-base", "t5-small"):
        words = ["estimate", "--model", name, "--gpu", "a100", "--gpus", 1, "--inference"]
        assert "only caches of decoders are planned" in dpplan(*words, "--advice", 0).stdout
        assert json.loads(dpplan(*words, "--json").stdout)["inference"] is None
