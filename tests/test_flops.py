"""Floating-point operations against the formulas and totals that papers print."""

from __future__ import annotations

import plans
import pytest
from command import dpplan
from hypothesis import given
from hypothesis import strategies as st

from planner.formulas.flops import (
    attended_elements,
    attention_forward_flop,
    causal_pairs,
    matmul_weights,
    model_flop,
)
from planner.formulas.params import parameter_leaves
from planner.formulas.run_level import utilisation
from planner.inputs import catalog
from planner.ledger import total
from planner.specs.layers import attended_of
from planner.specs.model import LatentAttention, ModelSpec


def flop_per_token(model: ModelSpec, seq: int) -> float:
    whole = 2 * attended_elements(model, seq)  # of the score matrix, as the papers below have it
    return float(model_flop(total(matmul_weights(model)), whole, 1.0))


def load(name: str) -> ModelSpec:
    return catalog.load("models", ModelSpec, name)


def test_llama_2_7b() -> None:
    # per layer 4 * 4096^2 attention and 3 * 4096 * 11008 MLP weights = 202,375,168; 32 layers and a
    # head of 32000 * 4096: 6,607,077,376 weights, 6 FLOP each; attention 12 * 32 layers * 4096
    # tokens * 4096 wide = 6,442,450,944
    model = load("llama-2-7b")
    assert total(matmul_weights(model)) == 6_607_077_376
    assert flop_per_token(model, 4096) == 6 * 6_607_077_376 + 6_442_450_944


def test_gpt_3_needs_3e23() -> None:
    # Brown et al. 2020 (arXiv 2005.14165), table D.1: 174,600M parameters, 300B tokens, 3.14e23
    # FLOP, attention left out
    weights = total(matmul_weights(load("gpt3-175b")))
    assert weights == pytest.approx(174.6e9, rel=1e-3)
    assert float(model_flop(weights, 0.0, 300e9)) == pytest.approx(3.14e23, rel=2e-3)


@given(
    layers=st.integers(1, 128),
    heads=st.integers(1, 128),
    vocab=st.integers(1, 200000),
    seq=st.integers(1, 100000),
)
def test_the_closed_form_of_megatron(layers: int, heads: int, vocab: int, seq: int) -> None:
    # Narayanan et al. 2021 (arXiv 2104.04473), equation 3 without the recomputed forward pass:
    # 72 B s l h^2 (1 + s/(6h) + V/(12 l h))
    h = 64 * heads
    gpt = plans.model(
        layers=layers,
        hidden=h,
        heads=heads,
        kv_heads=heads,
        ffn_hidden=4 * h,
        mlp="plain",
        vocab=vocab,
    )
    printed = 72 * layers * h**2 * (1 + seq / (6 * h) + vocab / (12 * layers * h))
    assert flop_per_token(gpt, seq) == pytest.approx(printed, rel=1e-12)


def test_palm_utilisation() -> None:
    # Chowdhery et al. 2022 (arXiv 2204.02311), appendix B: 238.3K tokens/s on 6144 chips of 275
    # TFLOP/s, 540.35B parameters, 118 layers, 48 heads of 256, sequences of 2048: MFU 46.2 %, and
    # 45.7 % without attention
    for attention, printed in ((118 * 48 * 2 * 256, 0.462), (0, 0.457)):
        flop = model_flop(540.35e9, attention * 2048.0, 238.3e3)
        assert float(utilisation(flop, 6144, 275e12, 1.0)) == pytest.approx(printed, abs=5e-4)


def test_a_tied_head_is_multiplied_with_though_it_is_stored_once() -> None:
    tied, untied = plans.model(tied_embeddings=True), plans.model(tied_embeddings=False)
    assert matmul_weights(tied) == matmul_weights(untied)
    assert matmul_weights(tied)["head/logits"] == 4096 * 512
    assert "embedding/word" not in matmul_weights(untied)  # a lookup, no product


def test_only_chosen_experts_count() -> None:
    # 2 of 8 experts, 3 matrices of 512 x 704, 8 layers
    weights = matmul_weights(plans.expert_model())
    assert weights["moe/experts"] == 2 * 3 * 512 * 704 * 8
    assert weights["moe/router"] == 512 * 8 * 8


@pytest.mark.parametrize("name", ["llama-2-70b", "mixtral-8x7b", "deepseek-v3", "gpt2"])
def test_no_more_weights_than_parameters(name: str) -> None:
    model = load(name)
    stored = sum(leaf.count * leaf.times for leaf in parameter_leaves(model) if leaf.matmul)
    tied = model.padded_vocab * model.hidden if model.tied_embeddings else 0
    assert total(matmul_weights(model)) <= stored + tied
    assert (total(matmul_weights(model)) < stored + tied) == (model.routed is not None)


def test_widths_of_latent_attention() -> None:
    latent = LatentAttention(kv_rank=64, nope_head_dim=48, rope_head_dim=16, value_head_dim=32)
    for model, widths in ((plans.model(latent=latent), (64, 32)), (plans.model(), (64, 64))):
        ((core, layers),) = attended_of(model)
        assert (core.query_width, core.value_width) == widths
        assert layers == model.layers


def test_attention_by_hand() -> None:
    # 1000 query-key pairs, 8 heads of width 64: two products of 2 * 64 FLOP each per pair and head
    assert float(attention_forward_flop(1000.0, 8.0, 64.0, 64.0)) == 1000 * 8 * 2 * 2 * 64
    # the full score matrix of one sequence: 4 s^2 h per layer, Korthikanti et al. 2022 (arXiv
    # 2205.05198), appendix A
    assert float(attention_forward_flop(2048.0**2, 96.0, 128.0, 128.0)) == 4 * 2048**2 * 12288


@pytest.mark.parametrize(
    ("seq", "window"), [(4096, 4096), (4096, 1024), (8192, 100000), (2048, 1500)]
)
def test_causal_pairs_agree_with_counting(seq: int, window: int) -> None:
    counted = sum(min(i, window) for i in range(1, seq + 1))
    assert float(causal_pairs(float(seq), float(window))) == pytest.approx(counted, rel=1e-3)


def test_causal_pairs_limits() -> None:
    assert float(causal_pairs(4096.0, 1e9)) == 4096**2 / 2  # half of the score matrix
    assert float(causal_pairs(1e6, 1.0)) == pytest.approx(1e6, rel=1e-5)  # each token sees one


def test_windows_on_every_second_layer() -> None:
    # three of seven layers see 256 tokens back
    model = plans.model(layers=7, attention_window=256, window_every=2)
    expected = 4 * 1024**2 / 2 + 3 * (256 * 1024 - 256**2 / 2)
    width = 8 * (64 + 64)
    assert attended_elements(model, 1024) * 1024 == pytest.approx(width * expected)
    assert attended_elements(plans.model(), 1024) * 1024 == 8 * width * 1024**2 / 2
    for short in (128, 256):  # no longer than the window
        assert attended_elements(model, short) == 7 * width * short / 2


@pytest.mark.parametrize("seq", [512, 4096, 131072])
def test_a_window_is_counted_as_what_it_leaves(seq: int) -> None:
    window = 2048
    every = plans.model(attention_window=window)
    # each query of a long sequence sees a window behind it, except for the corner of the matrix
    w = min(window, seq)
    all_of = 8 * 8 * (64 + 64)
    assert attended_elements(every, seq) == pytest.approx(all_of * (w - w * w / seq / 2))
    assert attended_elements(plans.model(), seq) == pytest.approx(all_of * seq / 2)
    half = plans.model(attention_window=window, window_every=2)
    middle = (attended_elements(every, seq) + all_of * seq / 2) / 2
    assert attended_elements(half, seq) == pytest.approx(middle)


# the last two: most of the time is attention on a GPU whose kernels reach most of its rate, where
# counting the half that a causal mask hides gave 111 % of the peak. The peak assumes the boost
# clock, above which a clock can be stated
@pytest.mark.parametrize(
    "text",
    [
        "--model phi-3-mini --gpu h100 --gpus 64 --seq-len 131072",
        "--model gemma-2-9b --gpu h100 --gpus 64 --seq-len 131072",
        "--model qwen3-4b --gpu h20 --gpus 64 --seq-len 32768",
        "--model qwen2.5-1.5b --gpu h20 --gpus 8 --seq-len 32768 --precision tf32"
        " --recompute full --clock 1.2",
    ],
)
def test_no_utilisation_is_above_the_peak_at_long_sequences(text: str) -> None:
    given = (*text.split(), "--stack-defaults", "--advice", "0")
    document = dpplan("estimate", *given, "--json").json()["throughput"]
    clock = float(text.partition("--clock ")[2] or 1)
    assert 0.1 < document["mfu"] <= document["hfu"] < 0.95 * clock
    assert document["mfu"] < document.get("mfu_palm", 1.0) <= 1
