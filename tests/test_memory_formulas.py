"""Bytes that training keeps: the published counts per layer, bytes that torch was seen to save,
cases worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import flat_of

from planner.estimate.machine import machine
from planner.estimate.memory import layer_activations
from planner.estimate.memory.norms import norm_bytes
from planner.formulas.memory import (
    attention_core_bytes,
    dropout_mask_bytes,
    logits_bytes,
    mlp_kept_bytes,
    norm_kept_bytes,
    product_input_bytes,
    projected_bytes,
    reserved_bytes,
    state_bytes,
)
from planner.ledger import total
from planner.specs.model import ModelSpec

# the 22B, 175B and 530B models of Korthikanti et al. 2022 (arXiv 2205.05198), table 3: heads,
# hidden; sequences of 2048
KORTHIKANTI = {"22b": (64, 6144), "175b": (96, 12288), "530b": (128, 20480)}
SEQUENCE = 2048


def gpt(heads: int, hidden: int) -> ModelSpec:
    return plans.model(
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn_hidden=4 * hidden,
        mlp="plain",
        activation="gelu",
        norm="layernorm",
        norm_bias=True,
        positions="learned",
        dropout=True,
        vocab=51200,
    )


def per_token_and_width(
    shape: ModelSpec, software: str, training: dict[str, Any], **chosen: Any
) -> tuple[float, float]:
    """Bytes kept per layer over s b h, (all but the attention core, attention core)."""
    plan = plans.plan(shape, software=software, seq_len=SEQUENCE, **training)
    table = plans.rows(8, chosen | {"micro_batch": 2})
    kept = layer_activations(plan, table)
    unit = SEQUENCE * 2 * shape.hidden
    core = float(kept.pop("attention/core")[0])
    kept.pop("norm/statistics")  # 4 or 8 B per token and norm, which the paper neglects
    return float(np.asarray(total(kept))[0]) / unit, core / unit


@pytest.mark.parametrize("size", KORTHIKANTI)
@pytest.mark.parametrize("t", [1, 2, 8])
def test_activations_of_a_gpt_layer(size: str, t: int) -> None:
    # arXiv 2205.05198: equation 1, 34 + 5 a s/h; equation 2, 10 + 24/t + 5 a s/(h t); equation 4,
    # 34/t + 5 a s/(h t)
    shape = gpt(*KORTHIKANTI[size])
    scores = 5 * flat_of(shape).heads * SEQUENCE / shape.hidden
    plain, core = per_token_and_width(shape, "megatron-lm-2022", {}, tp=t)
    assert plain == pytest.approx(10 + 24 / t)
    assert core == pytest.approx(scores / t)
    sequence_parallel, core = per_token_and_width(
        shape, "megatron-lm-2022", {}, tp=t, sequence_parallel=t > 1
    )
    assert sequence_parallel == pytest.approx(34 / t)
    assert core == pytest.approx(scores / t)


def test_the_attention_core_of_gpt_3_is_worth_recomputing() -> None:
    # arXiv 2205.05198, section 5: 5 a s/h is 80 for GPT-3 and 64 for MT-NLG, 70 % and 65 % of a
    # layer's activations
    for size, scores, share in (("175b", 80, 0.70), ("530b", 64, 0.65)):
        rest, core = per_token_and_width(gpt(*KORTHIKANTI[size]), "megatron-lm-2022", {})
        assert core == pytest.approx(scores)
        assert core / (core + rest) == pytest.approx(share, abs=0.006)


@pytest.mark.parametrize(
    ("shape", "software", "training", "saved"),
    [
        ("7b", "megatron-core", {}, 32.158),
        ("70b", "megatron-core", {}, 33.532),
        ("7b", "pytorch-fsdp", {"fused_norm": False}, 45.533),
        ("70b", "pytorch-fsdp", {"fused_norm": False}, 48.532),
    ],
)
def test_activations_of_a_llama_layer(
    shape: str, software: str, training: dict[str, Any], saved: float
) -> None:
    # bytes per token over h that autograd of torch 2.13 saves for one bf16 layer with flash
    # attention, counted on fake tensors: fused norm and SwiGLU (12 + 4 kv/a + 6 f/h), and
    # transformers' modules as they are (20 + 4 kv/a + 8 f/h); 4 a/h more for the log-sum-exp, and
    # 8/h for norm statistics that are left out here
    widths = {"7b": (4096, 32, 32, 11008), "70b": (8192, 64, 8, 28672)}
    hidden, heads, kv, ffn = widths[shape]
    llama = plans.model(
        hidden=hidden, heads=heads, kv_heads=kv, head_dim=128, ffn_hidden=ffn, vocab=32000
    )
    rest, core = per_token_and_width(llama, software, training)
    assert rest + core == pytest.approx(saved, abs=0.003)


def test_fewer_key_heads_than_ranks_are_copied() -> None:
    # eight ranks, eight heads of 64 and two key heads: each rank keeps one query, one key and one
    # value head
    plan = plans.plan(plans.model(kv_heads=2))
    kept = layer_activations(plan, plans.rows(8, {"tp": 8}, {"tp": 2}))
    assert kept["attention/qkv"].tolist() == [1024 * 3 * 64 * 2, 1024 * (4 + 2) * 64 * 2]


def test_experts_keep_what_their_tokens_need() -> None:
    # two of the experts per token: input 2 h, twice 2 * 2 h routed copies, twice 6 bytes of 704
    # elements, of which 4 go into the activation function
    plan = plans.plan(plans.expert_model())
    stack = plan.stack
    work = stack.experts.model_copy(update={"weighted_inside": False})
    stack = stack.model_copy(update={"experts": work})
    plan = plan.model_copy(update={"stack": stack})
    kept = layer_activations(plan, plans.rows(8, {}))
    assert float(kept["moe/input"][0]) == 1024 * 512 * 2
    assert float(kept["moe/routed"][0]) == float(kept["moe/combined"][0]) == 1024 * 2 * 512 * 2
    assert float(kept["moe/hidden"][0]) == 1024 * 2 * 704 * 4
    assert float(kept["moe/activated"][0]) == 1024 * 2 * 704 * 2
    # Megatron-Core weights what goes into the last GEMM: its output is read by nothing
    weighted = layer_activations(plans.plan(plans.expert_model()), plans.rows(8, {}))
    assert float(weighted["moe/combined"][0]) == 0
    assert all(weighted[name] == kept[name] for name in kept if name != "moe/combined")
    assert "mlp/hidden" not in kept


def test_cases_by_hand() -> None:
    assert float(state_bytes(7e9, 16.0, 8.0)) == 14e9
    assert (
        float(norm_kept_bytes(1000.0, 512.0, 2.0, 2.0)) == 2_048_000
    )  # 1000 tokens, 512 wide, two norms of 2 B
    assert float(product_input_bytes(1000.0, 512.0, 2.0)) == 1_024_000
    assert float(projected_bytes(1000.0, 768.0, 2.0, 4.0)) == 384_000
    assert float(dropout_mask_bytes(1000.0, 512.0, 2.0)) == 1_024_000
    assert float(mlp_kept_bytes(1000.0, 2048.0, 6.0, 2.0)) == 6_144_000
    assert float(logits_bytes(1000.0, 32000.0, 6.0, 2.0)) == 96_000_000
    assert float(reserved_bytes(60.0, 40.0, 0.2)) == pytest.approx(
        108
    )  # states leave no gaps, 40 that come and go leave 8


def test_flash_attention_keeps_only_its_statistics() -> None:
    # 2048 tokens of 32 heads: 4 B of log-sum-exp each; with scores kept, 5 B per score over 2048
    # keys
    flash, scores = attention_core_bytes(2048.0, 32.0, 2048.0, np.array([0.0, 5.0]), 1.0)
    assert flash == 2048 * 32 * 4
    assert scores == 5 * 32 * 2048**2


@given(tokens=st.integers(1, 10**6), heads=st.integers(1, 128), tp=st.integers(1, 16))
def test_flash_attention_grows_linearly_and_scores_quadratically(
    tokens: int, heads: int, tp: int
) -> None:
    first, two = (
        attention_core_bytes(
            float(n * tokens), heads, float(n * tokens), np.array([0.0, 5.0]), float(tp)
        )
        for n in (1, 2)
    )
    assert (two / first).tolist() == pytest.approx([2.0, 4.0])


@pytest.mark.parametrize(
    ("norm", "training", "fused"),
    [
        ("rmsnorm", {"fused_norm": False}, False),
        ("rmsnorm", {"fused_norm": False, "compile": True}, True),
        ("rmsnorm", {"fused_norm": True}, True),
        ("layernorm", {"fused_norm": False}, True),
    ],
)
def test_time_and_memory_agree_on_what_fuses_a_norm(
    norm: str, training: dict[str, Any], fused: bool
) -> None:
    plan = plans.plan(plans.model(norm=norm), software="pytorch-fsdp", **training)
    assert plan.fused_norm == fused
    assert norm_bytes(plan) == (2.0 if fused else 6.0)
    chain = float(machine(plan).norm_forward) > 6.0  # bytes moved by torch operators, in fp32
    assert chain == (not fused)
