"""The model catalogue and its parameter counts: published numbers, hand-worked leaves, laws that
hold for any shape.

Long: a line for every model of the catalogue.
"""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.formulas.params import active_parameter_count, parameter_count, parameter_leaves
from planner.inputs import catalog
from planner.inputs.training import sequence_sentence
from planner.specs.base import PlanError
from planner.specs.layers import layers_of, of_samples
from planner.specs.model import ModelSpec, stated
from planner.specs.parts import Moe

IDS = catalog.ids("models")


def model(name: str) -> ModelSpec:
    return catalog.load("models", ModelSpec, name)


# Elements in the released weight files, a tied head once.
RELEASED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt-neox-20b": 20_554_567_680,
    "bloom-176b": 176_247_271_424,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-30b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "phi-3-mini": 3_821_079_552,
    "phi-3-medium": 13_960_238_080,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    # 671,026,419,200 less the balancing bias of 256 experts in 58 layers, which no gradient trains
    "deepseek-v3": 671_026_419_200 - 58 * 256,
}

# What transformers 5.23 makes of the configs of the Hub on the meta device: all parameters, a tied
# head once, no multi-token prediction
TRANSFORMERS = {
    "deepseek-v3.2": 671_877_929_216,
    "deepseek-v4-flash": 284_332_230_231,
    "deepseek-v4-pro": 1_572_997_179_491,
    "falcon-40b": 41_303_293_952,
    "falcon-7b": 6_921_720_704,
    "falcon-h1-0.5b": 521_411_104,
    "falcon-h1-34b": 33_642_221_312,
    "falcon-h1-7b": 7_585_513_568,
    "gemma-3-12b": 11_766_034_176,
    "gemma-3-1b": 999_885_952,
    "gemma-3-27b": 27_009_346_304,
    "gemma-3-4b": 3_880_263_168,
    "gemma-4-26b-a4b": 25_233_141_760,
    "gemma-4-31b": 30_697_345_280,
    "glm-4-9b": 9_399_951_360,
    "glm-4.5": 352_797_814_784,
    "glm-4.5-air": 106_852_245_504,
    "glm-5": 743_911_199_232,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "granite-3-2b": 2_533_531_648,
    "granite-3-8b": 8_170_848_256,
    "granite-4-h-micro": 3_191_396_096,
    "granite-4-h-small": 32_207_337_984,
    "granite-4-h-tiny": 6_939_037_248,
    "granite-4-micro": 3_402_836_480,
    "hunyuan-a13b": 80_393_183_232,
    "kimi-k2": 1_026_408_209_408,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-4-maverick": 400_711_848_960,
    "llama-4-scout": 107_769_861_120,
    "minimax-01": 456_089_655_296,
    "minimax-m2": 228_689_748_992,
    "mistral-7b-v0.3": 7_248_023_552,
    "mistral-large-2": 122_610_069_504,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "moonlight-16b-a3b": 15_960_108_544,
    "nemotron-3-nano": 31_577_937_344,
    "nemotron-3-super": 120_668_687_360,
    "nemotron-3-ultra": 549_308_968_960,
    "nemotron-h-56b": 56_324_350_464,
    "olmo-2-13b": 13_716_198_400,
    "olmo-2-32b": 32_234_279_936,
    "olmo-2-7b": 7_298_617_344,
    "olmo-3-32b": 32_233_522_176,
    "olmo-3-7b": 7_298_011_136,
    "phi-4": 14_659_507_200,
    "qwen3-next-80b-a3b": 79_674_391_296,
    "qwen3.5-122b-a10b": 122_111_526_912,
    "qwen3.5-27b": 26_895_998_464,
    "qwen3.5-35b-a3b": 34_660_610_688,
    "qwen3.5-397b-a17b": 396_346_350_336,
    "smollm2-1.7b": 1_711_376_384,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm3-3b": 3_075_098_624,
    "tinyllama-1.1b": 1_100_048_384,
    "yi-34b": 34_388_917_248,
    "yi-6b": 6_061_035_520,
}

# The same of encoders: BertForMaskedLM, RobertaForMaskedLM and ViTForImageClassification of 1,000
# classes; DiT: the trained parameters of models.py, 28 (18 h^2 + 15 h) in blocks, 2 h^2 + 34 h + 32
# in the last layer, h^2 + 1275 h of patches, timesteps and labels, at h 1152
ENCODERS = {
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "roberta-large": 355_412_057,
    "vit-b-16": 86_567_656,
    "vit-h-14": 632_045_800,
    "vit-l-16": 304_326_632,
    "dit-xl-2": 674_834_720,
}

# Counts as the papers print them, in billions: (total, printed step)
PRINTED = {
    "gpt3-125m": (0.125, 0.001),
    "gpt3-350m": (0.35, 0.015),  # printed "350M"; the shape gives 356M
    "gpt3-760m": (0.76, 0.01),
    "gpt3-1.3b": (1.3, 0.1),
    "gpt3-2.7b": (2.7, 0.1),
    "gpt3-6.7b": (6.7, 0.1),
    "gpt3-13b": (13.0, 1.0),
    "gpt3-175b": (175.0, 1.0),
    "opt-175b": (175.0, 1.0),
    "nemotron-4-15b": (15.6, 0.1),  # 3.2 embedding + 12.5 other, less rounding
    "nemotron-4-340b": (341.0, 0.1),  # 9.4 + 331.6
    "mt-nlg-530b": (530.0, 1.0),
    "hunyuan-large": (389.0, 1.0),
    "megatron-1.7b": (1.7, 0.1),
    "megatron-3.6b": (3.6, 0.1),
    "megatron-7.5b": (7.5, 0.1),
    "megatron-18.4b": (18.4, 0.1),
    "megatron-39.1b": (39.1, 0.1),
    "megatron-76.1b": (76.1, 0.1),
    "megatron-145.6b": (145.6, 0.1),
    "megatron-310.1b": (310.1, 0.1),
    "megatron-529.6b": (529.6, 0.1),
    "megatron-1008b": (1008.0, 0.1),
    "megatron-22b": (22.0, 1.0),
    "megatron-175b": (175.0, 1.0),
}

ACTIVE_PRINTED = {
    "mixtral-8x7b": (12.9, 0.1),
    "mixtral-8x22b": (39.0, 1.0),
    "qwen3-30b-a3b": (3.3, 0.11),  # printed "3.3B" of 3.353
    "qwen3-235b-a22b": (22.0, 1.0),
    "deepseek-v2": (21.0, 1.0),
    "kimi-k2": (32.6, 0.6),  # printed "32.6B", which leaves the embedding out
    "deepseek-v3": (37.0, 1.11),  # printed "37B" of 37.55, which counts both embeddings
}


@pytest.mark.parametrize("name", IDS)
def test_catalogue_entry(name: str) -> None:
    spec = model(name)
    assert spec.name == name == name.lower()
    assert spec.title
    assert spec.source
    assert 0 < active_parameter_count(spec) <= parameter_count(spec)
    sparse = any(isinstance(part, Moe) for kind in layers_of(spec).kinds for part in kind.parts)
    assert (active_parameter_count(spec) < parameter_count(spec)) == sparse


def test_ids_and_aliases_are_unique_and_reachable() -> None:
    entries = [
        tomllib.loads(path.read_text("utf-8")) for path in catalog.folder("models").glob("*.toml")
    ]
    names = [name for e in entries for name in (e["name"], *e["aliases"], *e.get("hub", ()))]
    assert len(names) == len(set(names))
    assert not any(catalog.is_path(name) for name in names)
    for entry in entries:
        assert all(name == name.lower() for name in (entry["name"], *entry["aliases"]))
        bare = [one.rpartition("/")[2] for one in entry.get("hub", ())]
        for name in (*entry["aliases"], *entry.get("hub", ()), *bare):
            assert catalog.find("models", name).stem == entry["name"]


def test_llama_70b_is_llama_2() -> None:
    assert model("llama-70b") == model("llama-2-70b")


def test_unknown_model_answers_with_near_matches() -> None:
    with pytest.raises(PlanError, match="llama2-70b"):
        model("llama2-70")


@pytest.mark.parametrize(("name", "count"), RELEASED.items())
def test_count_of_released_weights(name: str, count: int) -> None:
    assert parameter_count(model(name)) == count


def test_counts_of_transformers() -> None:
    assert {name: parameter_count(model(name)) for name in TRANSFORMERS} == TRANSFORMERS


def test_encoders_count_as_transformers_and_have_samples_of_their_own() -> None:
    assert {name: parameter_count(model(name)) for name in ENCODERS} == ENCODERS
    towers = {name for name in IDS if model(name).towers or model(name).convolutions}
    assert {name for name in IDS if of_samples(model(name))} - towers == set(ENCODERS)
    for name in ENCODERS:
        spec = model(name)
        assert spec.published.sequence is not None
        tokens = spec.published.sequence.tokens
        assert tokens == spec.max_positions
        assert f"{tokens} tokens per {spec.samples[:-1]}" in sequence_sentence(spec, tokens)
    assert (model("bert-base").samples, model("vit-b-16").samples) == ("samples", "images")
    assert model("gpt2").samples == "sequences"


@pytest.mark.parametrize(("name", "printed"), PRINTED.items())
def test_count_rounds_to_the_printed_one(name: str, printed: tuple[float, float]) -> None:
    billions, step = printed
    assert abs(parameter_count(model(name)) / 1e9 - billions) <= step / 2 + 1e-9


@pytest.mark.parametrize(("name", "printed"), ACTIVE_PRINTED.items())
def test_active_count_rounds_to_the_printed_one(name: str, printed: tuple[float, float]) -> None:
    billions, step = printed
    assert abs(active_parameter_count(model(name)) / 1e9 - billions) <= step / 2


def test_mixtral_active_is_total_less_the_idle_experts() -> None:
    # 6 of 8 experts idle in each of 32 layers, three matrices of 4096 x 14336 each
    assert 46_702_792_704 - 32 * 6 * 3 * 4096 * 14336 == 12_879_925_248
    assert active_parameter_count(model("mixtral-8x7b")) == 12_879_925_248


@pytest.mark.parametrize(
    "name", [name for name in IDS if name.startswith(("megatron-", "mt-nlg", "gpt3-", "mpt-"))]
)
def test_narayanan_formula(name: str) -> None:
    """arXiv 2104.04473 equation 2: P = 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)), which leaves
    out the last norm."""
    spec = model(name)
    layers, h = spec.layers, spec.hidden
    formula = 12 * layers * h * h + 13 * layers * h + (spec.padded_vocab + spec.max_positions) * h
    assert parameter_count(spec) == formula + 2 * h


def tiny(**fields: object) -> ModelSpec:
    """Hand-sized: h 8, 4 heads of 2 with 2 key/value heads, MLP 16, vocabulary 10, 3 layers."""
    base = {
        "name": "tiny",
        "layers": 3,
        "hidden": 8,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 2,
        "ffn_hidden": 16,
        "vocab": 10,
    }
    return ModelSpec.model_validate({**base, **fields})


def leaves(spec: ModelSpec) -> dict[str, tuple[int, int]]:
    return {leaf.name: (leaf.count, leaf.times) for leaf in parameter_leaves(spec)}


def test_leaves_of_a_llama_block() -> None:
    assert leaves(tiny()) == {
        "embedding/word": (10 * 8, 1),
        "norm/layer": (2 * 8, 3),
        "attention/qkv": (8 * (8 + 4 + 4), 3),
        "attention/out": (8 * 8, 3),
        "mlp/weights": (3 * 8 * 16, 3),
        "head/norm": (8, 1),
        "head/logits": (10 * 8, 1),
    }


def test_leaves_of_a_gpt_block() -> None:
    gpt = {
        "mlp": "plain",
        "norm": "layernorm",
        "norm_bias": True,
        "positions": "learned",
        "tied_embeddings": True,
    }
    biases = {"bias_qkv": True, "bias_attention_out": True, "bias_mlp": True, "bias_head": True}
    spec = tiny(
        kv_heads=4, max_positions=5, embedding_norm=True, qk_norm="per_head", **gpt, **biases
    )
    assert leaves(spec) == {
        "embedding/word": (80, 1),
        "embedding/position": (5 * 8, 1),
        "embedding/norm": (16, 1),
        "norm/layer": (2 * 16, 3),
        "attention/qkv": (8 * 24, 3),
        "attention/qkv_bias": (24, 3),
        "attention/out": (64, 3),
        "attention/qk_norm": (2 * 2 * 2, 3),
        "attention/out_bias": (8, 3),
        "mlp/weights": (2 * 8 * 16, 3),
        "mlp/bias_in": (16, 3),
        "mlp/bias_out": (8, 3),
        "head/norm": (16, 1),
        "head/bias": (10, 1),
    }


def test_leaves_of_latent_attention() -> None:
    latent = {
        "query_rank": 6,
        "kv_rank": 5,
        "nope_head_dim": 3,
        "rope_head_dim": 2,
        "value_head_dim": 4,
    }
    found = leaves(tiny(kv_heads=4, latent=latent))
    assert {name: count for name, (count, _) in found.items() if name.startswith("attention")} == {
        "attention/q_down": 8 * 6,
        "attention/q_norm": 6,
        "attention/q_up": 6 * 4 * (3 + 2),
        "attention/kv_down": 8 * (5 + 2),
        "attention/kv_norm": 5,
        "attention/kv_up": 5 * 4 * (3 + 4),
        "attention/out": 4 * 4 * 8,
    }
    direct = leaves(tiny(kv_heads=4, latent={**latent, "query_rank": None}))
    assert direct["attention/q"] == (8 * 4 * 5, 3)


def test_leaves_of_experts() -> None:
    moe = {
        "experts": 4,
        "experts_per_token": 2,
        "ffn_hidden": 6,
        "shared_ffn_hidden": 12,
        "shared_gate": True,
    }
    spec = tiny(moe={**moe, "dense_layers": 1}, bias_mlp=True)
    found = leaves(spec)
    assert found["mlp/weights"] == (3 * 8 * 16, 1)
    assert found["mlp/bias_in"] == (2 * 16, 1)
    assert found["moe/router"] == (8 * 4, 2)
    assert found["moe/experts"] == (4 * 3 * 8 * 6, 2)
    assert found["moe/experts_bias"] == (4 * (2 * 6 + 8), 2)
    assert found["moe/shared"] == (3 * 8 * 12, 2)
    assert found["moe/shared_bias_in"] == (2 * 12, 2)
    assert found["moe/shared_bias_out"] == (8, 2)
    assert found["moe/shared_gate"] == (8, 2)
    idle = 2 * (4 - 2) * (3 * 8 * 6 + 2 * 6 + 8)
    assert parameter_count(spec) - active_parameter_count(spec) == idle


@pytest.mark.parametrize(
    ("layers", "dense", "every", "experts"),
    [
        (6, 0, 1, 6),
        (6, 2, 1, 4),
        (6, 0, 2, 3),
        (7, 0, 2, 4),
        (6, 1, 2, 3),
        (7, 1, 2, 3),
        (3, 3, 1, 0),
        (10, 2, 3, 3),
    ],
)
def test_layers_with_experts(layers: int, dense: int, every: int, experts: int) -> None:
    moe = {
        "experts": 4,
        "experts_per_token": 2,
        "ffn_hidden": 6,
        "dense_layers": dense,
        "every": every,
    }
    spec = tiny(layers=layers, moe=moe)
    assert spec.moe_layers == experts == len(range(dense, layers, every))
    assert spec.dense_layers == layers - experts


def test_vocabulary_padding() -> None:
    assert tiny(vocab_multiple=16).padded_vocab == 16
    assert parameter_count(tiny(vocab_multiple=16)) - parameter_count(tiny()) == 2 * 6 * 8


def test_latent_attention_refuses_biases_it_does_not_count() -> None:
    latent = {"kv_rank": 5, "nope_head_dim": 3, "rope_head_dim": 2, "value_head_dim": 4}
    with pytest.raises(ValueError, match="bias_qkv"):
        tiny(kv_heads=4, latent=latent, bias_qkv=True)


WIDTHS = st.integers(1, 64)


@st.composite
def shapes(draw: st.DrawFn) -> ModelSpec:
    kv = draw(st.integers(1, 4))
    flags = (
        "norm_bias",
        "embedding_norm",
        "final_norm",
        "tied_embeddings",
        "bias_attention_out",
        "bias_mlp",
        "bias_head",
    )
    fields: dict[str, object] = {flag: draw(st.booleans()) for flag in flags}
    layers = draw(st.integers(1, 8))
    if draw(st.booleans()):
        experts = draw(st.integers(2, 8))
        fields["moe"] = {
            "experts": experts,
            "experts_per_token": draw(st.integers(1, experts)),
            "ffn_hidden": draw(WIDTHS),
            "shared_ffn_hidden": draw(st.integers(0, 16)),
            "shared_gate": draw(st.booleans()),
            "dense_layers": draw(st.integers(0, layers)),
            "every": draw(st.integers(1, 3)),
        }
    if draw(st.booleans()):
        names = ("kv_rank", "nope_head_dim", "rope_head_dim", "value_head_dim")
        fields["latent"] = {name: draw(WIDTHS) for name in names} | {
            "query_rank": draw(st.none() | WIDTHS)
        }
    else:
        fields |= {
            "bias_qkv": draw(st.booleans()),
            "qk_norm": draw(st.sampled_from(["none", "per_head", "full"])),
        }
    return ModelSpec.model_validate(
        {
            "name": "any",
            "layers": layers,
            "hidden": draw(WIDTHS),
            "heads": kv * draw(st.integers(1, 4)),
            "kv_heads": kv,
            "head_dim": draw(WIDTHS),
            "ffn_hidden": draw(WIDTHS),
            "vocab": draw(st.integers(1, 300)),
            "vocab_multiple": draw(st.sampled_from([1, 8, 128])),
            "max_positions": draw(WIDTHS),
            "mlp": draw(st.sampled_from(["plain", "gated"])),
            "norms_per_layer": draw(st.sampled_from([2, 4])),
            "positions": draw(st.sampled_from(["learned", "rotary", "alibi", "none"])),
            **fields,
        }
    )


def changed(spec: ModelSpec, **fields: object) -> ModelSpec:
    return ModelSpec.model_validate({**stated(spec), **fields})


@given(shapes())
def test_count_is_the_sum_of_its_leaves(spec: ModelSpec) -> None:
    parts = parameter_leaves(spec)
    assert len({leaf.name for leaf in parts}) == len(parts)
    assert all(isinstance(leaf.count, int) and leaf.count > 0 for leaf in parts)
    assert parameter_count(spec) == sum(leaf.count * leaf.times for leaf in parts)


@given(shapes())
def test_more_layers_or_width_are_more_parameters(spec: ModelSpec) -> None:
    assert parameter_count(changed(spec, layers=spec.layers + 1)) > parameter_count(spec)
    assert parameter_count(changed(spec, hidden=spec.hidden + 1)) > parameter_count(spec)


@given(shapes())
def test_tying_saves_exactly_the_head(spec: ModelSpec) -> None:
    tied, untied = changed(spec, tied_embeddings=True), changed(spec, tied_embeddings=False)
    assert parameter_count(untied) - parameter_count(tied) == spec.padded_vocab * spec.hidden


@given(shapes())
def test_active_parameters(spec: ModelSpec) -> None:
    total, active = parameter_count(spec), active_parameter_count(spec)
    idle = (
        spec.routed is not None
        and spec.moe_layers > 0
        and spec.routed.experts_per_token < spec.routed.experts
    )
    assert (active < total) if idle else (active == total)


@given(shapes())
def test_a_plain_decoder_is_stated_as_it_is_read(spec: ModelSpec) -> None:
    assert changed(spec) == spec
    assert "parts" not in stated(spec)


@given(shapes())
def test_layers_of_both_kinds_make_all_layers(spec: ModelSpec) -> None:
    assert spec.dense_layers + spec.moe_layers == spec.layers
    assert spec.dense_layers >= 0
    assert spec.moe_layers >= 0
