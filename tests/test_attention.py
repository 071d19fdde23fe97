"""Attention by kernel and length, and the ways of sharing a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plans import layout, model, plan, rows

from planner.estimate import evaluate
from planner.estimate.communicate import Collective
from planner.estimate.layer import layer_costs, local_shape
from planner.estimate.layer.shape import key_of
from planner.estimate.machine import machine
from planner.estimate.machine.attention import attention_numbers, kernel_on
from planner.estimate.memory.activations import layer_activations
from planner.formulas.kernels import attention_shape_frac
from planner.formulas.rules import check
from planner.formulas.rules.divide import CONTEXT
from planner.inputs import catalog
from planner.ledger import Sourced
from planner.specs.capabilities import lacks
from planner.specs.hardware import GpuSpec
from planner.specs.names import ATTENTIONS, CONTEXT_WAYS, AttentionName, ContextWay
from planner.specs.plan import Plan

WIDE = model(layers=4, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn_hidden=14336)


def _rate(gpu: str, kernel: AttentionName, tokens: float, way: str = "forward") -> float:
    """TFLOP/s of a kernel, causal, heads 128 wide."""
    curve = catalog.load("gpus", GpuSpec, gpu).kernels.attention[kernel]
    rate = catalog.load("gpus", GpuSpec, gpu).rate("bf16")
    half = float(getattr(curve, f"half_{way}"))
    share = float(getattr(curve, way)) * float(attention_shape_frac(tokens, 128.0, half))
    return float(rate or 0.0) * share / 1e12


@pytest.mark.parametrize(
    ("tokens", "published"), [(1024, 423), (2048, 521), (4096, 579), (8192, 602), (16384, 616)]
)
def test_flash_attention_3_is_as_fast_as_its_paper_says(tokens: int, published: float) -> None:
    # Shah et al. 2024 (arXiv 2407.08608), figure 5: H100 SXM5, forward, causal, head width 128
    assert _rate("h100-sxm5-80gb", "flash3", tokens) == pytest.approx(published, rel=0.17)
    assert _rate("h100-sxm5-80gb", "flash3", 16384.0) == pytest.approx(616, rel=0.03)


def test_flash_attention_4_is_as_fast_as_measured() -> None:
    # 0.476 ms for 8,192 tokens of 32 heads of 128, causal, on B200: flash-attention's own record
    assert _rate("b200-sxm-180gb", "flash4", 8192.0) == pytest.approx(1155, rel=0.12)


@pytest.mark.parametrize(
    ("gpu", "forward", "backward"), [("mi300x-192gb", 537, 474), ("mi355x-288gb", 1308, 1066)]
)
def test_assembly_kernels_of_amd(gpu: str, forward: float, backward: float) -> None:
    # means at 8,192 tokens, causal, of ROCm/aiter@e4048607 op_tests/cpp/mha/README.md
    assert _rate(gpu, "cudnn", 8192.0) == pytest.approx(forward, rel=0.05)
    assert _rate(gpu, "cudnn", 8192.0, "backward") == pytest.approx(backward, rel=0.05)


def test_kernels_of_an_older_generation_gain_little_from_a_newer_one() -> None:
    # the same instructions per SM: FlashAttention-2 on B200 is near its 335 TFLOP/s on H100, far
    # below the kernels written for Blackwell
    old, new = (_rate("b200-sxm-180gb", kernel, 65536.0) for kernel in ("flash2", "flash4"))
    assert old == pytest.approx(335 * 148 / 132, rel=0.02)
    assert new > 3 * old


def test_a_kernel_comes_to_one_that_its_gpu_has() -> None:
    gpus = {
        name: catalog.load("gpus", GpuSpec, name)
        for name in ("h100-sxm5-80gb", "b200-sxm-180gb", "mi300x-192gb")
    }
    assert kernel_on("flash4", gpus["h100-sxm5-80gb"]) == "flash3"
    assert kernel_on("flash3", gpus["b200-sxm-180gb"]) == "flash4"
    assert kernel_on("flash3", gpus["mi300x-192gb"]) == "flash2"
    for gpu in gpus.values():
        for older in ATTENTIONS[3:]:
            assert kernel_on(older, gpu) == older


def _with(kernel: AttentionName, seq_len: int = 32768, gpu: str = "h100-sxm5-80gb") -> Plan:
    return plan(WIDE, gpus=8, gpu=gpu, seq_len=seq_len, global_batch=8, attention=kernel)


def _attention_s(plan: Plan) -> float:
    attention = evaluate(plan, rows(8, {"zero": 1})).time.components["attention"]
    return float(np.ravel(attention)[0])


def test_newer_kernels_are_faster_on_the_gpu_they_are_written_for() -> None:
    order: tuple[AttentionName, ...] = ("eager", "flash1", "flash2", "cudnn", "flash3")
    seconds = [_attention_s(_with(kernel)) for kernel in order]
    assert seconds == sorted(seconds, reverse=True)
    assert _attention_s(_with("flash3")) == _attention_s(_with("flash4"))


def test_attention_of_a_long_sequence_takes_what_its_rate_leaves() -> None:
    # 256k tokens on one H200: 2 s^2 a d L FLOP forward, 2.5 times as many backward, at no less
    # than nine tenths of the long-sequence rates
    result = _with("flash3", 262144, "h200-sxm-141gb")
    forward = 2 * 262144**2 * 4096 * 4
    least = forward / (0.65 * 989e12) + 2.5 * forward / (0.58 * 989e12)
    assert least < _attention_s(result) < least / 0.9


def test_a_lower_clock_slows_every_kernel() -> None:
    for kernel in ("flash2", "flash3"):
        free = _with(kernel)
        usual = free.cluster.gpu.kernels.sustained_clock
        half = Sourced(float(usual) / 2, "1", "assumed", "half of the usual clock")
        slow = free.model_copy(update={"cluster": free.cluster.model_copy(update={"clock": half})})
        assert _attention_s(slow) == pytest.approx(2 * _attention_s(free), rel=1e-3)


def test_a_kernel_without_a_curve_has_the_rates_of_the_profile() -> None:
    numbers = attention_numbers(_with("flash2"))
    gpu = _with("flash2").cluster.gpu
    assert float(numbers["attention_forward"]) == float(gpu.kernels.attention_forward)
    assert float(numbers["attention_version_forward"]) == 1.0


def _shared(way: ContextWay, gpus: int = 8, **changes: Any) -> Plan:
    return plan(
        WIDE,
        gpus=gpus,
        gpu="h100-sxm5-80gb",
        seq_len=65536,
        global_batch=8,
        context_way=way,
        **changes,
    )


def _collectives(plan: Plan, cp: int) -> list[Collective]:
    columns = rows(plan.cluster.gpus, {"cp": cp, "zero": 1})
    shape = local_shape(plan, **key_of(columns))
    collectives = layer_costs([shape], machine(plan))[0].collectives
    return [entry for entry in collectives if entry.group == "context"]


def test_ulysses_sends_queries_keys_values_and_the_output() -> None:
    # 16k tokens of a rank, 32 heads of queries and of the output, 8 of keys and of values, 128 wide
    # in 16 bit: 335 MB in four calls each way, nothing hidden
    (collective,) = _collectives(_shared("ulysses"), 4)
    assert collective.operation == "all_to_all"
    assert 4 * float(collective.tensor_bytes[0]) == 2 * 16384 * (2 * 32 + 2 * 8) * 128
    assert float(collective.forward[0]) == float(collective.backward[0]) == 4.0
    assert float(collective.hidden_backward[0]) == 0.0


def test_keys_and_values_are_repeated_where_ranks_are_more_than_their_heads() -> None:
    few, many = (
        float(_collectives(_shared("ulysses", gpus=16), cp)[0].tensor_bytes[0]) for cp in (8, 16)
    )
    # twice the ranks have half of the tokens; the 8 heads of keys and values are sent twice
    assert few == 0.5 * 65536 / 8 * (2 * 32 + 2 * 8) * 128
    assert many == 0.5 * 65536 / 16 * (2 * 32 + 2 * 16) * 128


def test_an_all_gather_hides_nothing_and_a_ring_most() -> None:
    gathered, ring = (
        sum(float(np.ravel(x.forward_s + x.backward_s)[0]) for x in _collectives(_shared(way), 4))
        for way in ("all-gather", "ring")
    )
    assert 0 < ring < gathered


def test_a_hybrid_is_ulysses_inside_a_node_and_a_ring_beyond() -> None:
    # 8 heads of keys and values on nodes of 8: cp 8 is only Ulysses, cp 16 a ring of two
    alone, both = (_collectives(_shared("hybrid", gpus=16), cp) for cp in (8, 16))
    ulysses = _collectives(_shared("ulysses", gpus=16), 8)
    assert float(alone[0].forward_s[0]) == float(ulysses[0].forward_s[0])
    assert float(alone[1].forward_s[0]) == 0.0
    assert [float(x.placed.ranks[0]) for x in both] == [8.0, 2.0]
    assert [float(x.placed.nodes[0]) for x in both] == [1.0, 2.0]


@pytest.mark.parametrize("way", CONTEXT_WAYS)
def test_every_way_computes_the_same_flop(way: ContextWay) -> None:
    result = _shared(way)
    columns = rows(8, {"cp": 4, "zero": 1}, {"cp": 1, "zero": 1})
    (cost,) = layer_costs([local_shape(result, **key_of(columns))], machine(result))
    assert float(cost.core_flop[0]) == float(cost.core_flop[1]) / 4
    # a ring works on blocks, which are shorter, and merges their results
    alone, shared = float(cost.attention_core[1]), 4 * float(cost.attention_core[0])
    assert (
        shared == pytest.approx(alone, rel=1e-3)
        if way in ("ulysses", "all-gather")
        else (alone < shared < 1.15 * alone)
    )


def test_heads_limit_ulysses_and_the_reason_names_them() -> None:
    result = _shared("ulysses", gpus=64)
    names = {"cp": 64, "zero": 1}
    kept = check(result, rows(64, names, {"cp": 32, "zero": 1}, {"cp": 16, "tp": 4, "zero": 1}))
    assert kept["heads divide by cp"].tolist() == [False, True, False]
    text = CONTEXT.sentence(result, layout(64, **names))
    assert "32 of 32 (8 of keys and values)" in text
    assert "--cp 32" in text
    assert "--cp-comm-type ring or all-gather or hybrid" in text
    other = _shared("ring", gpus=64, software="deepspeed")
    (lack,) = lacks(other.stack, {"cp": 2, "cp_comm_type": "ring"})
    assert str(lack) == "--cp-comm-type ring (it has ulysses)"


def test_ulysses_keeps_the_keys_and_values_that_it_repeats() -> None:
    # 16 ranks share 8 heads of keys and values: each keeps one, twice what a ring's rank has of
    # them beside the 32 heads of queries
    columns = rows(16, {"cp": 16, "zero": 1})
    ring, ulysses = (
        float(layer_activations(_shared(way, gpus=16), columns)["attention/qkv"][0])
        for way in ("ring", "ulysses")
    )
    assert ulysses / ring == pytest.approx((32 + 2 * 16) / (32 + 2 * 8))
