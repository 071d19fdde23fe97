"""The model catalogue and its parameter counts: published numbers, hand-worked leaves, laws that
hold for any shape."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.formulas.params import active_parameter_count, parameter_count, parameter_leaves
from planner.inputs import catalog
from planner.inputs.model import language_models
from planner.inputs.training import sequence_sentence
from planner.specs.base import PlanError
from planner.specs.layers import layers_of, of_samples
from planner.specs.model import ModelSpec, stated
from planner.specs.options import Options
from planner.specs.parts import Moe

IDS = catalog.ids("models")


def model(name: str) -> ModelSpec:
    return catalog.load("models", ModelSpec, name)


COUNTS = tomllib.loads(
    (Path(__file__).parent / "data/model_counts.toml").read_text(encoding="utf-8")
)
RELEASED, TRANSFORMERS, ENCODERS = (COUNTS[n] for n in ("released", "transformers", "encoders"))
PRINTED, ACTIVE_PRINTED = COUNTS["printed"], COUNTS["active_printed"]


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
        bare = [item.rpartition("/")[2] for item in entry.get("hub", ())]
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
    traced = {name for name in IDS if any(part.type == "traced" for part in model(name).parts)}
    assert {name for name in IDS if of_samples(model(name))} - towers - traced == set(ENCODERS)
    for name in ENCODERS:
        spec = model(name)
        assert spec.published.sequence is not None
        tokens = spec.published.sequence.tokens
        assert tokens == spec.max_positions
        assert f"{tokens:,} tokens per {spec.samples[:-1]}" in sequence_sentence(
            Options(model=spec.name, gpu="h100"), spec, tokens
        )
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
    by_leaf = leaves(tiny(kv_heads=4, latent=latent))
    assert {
        name: count for name, (count, _) in by_leaf.items() if name.startswith("attention")
    } == {
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
    by_leaf = leaves(spec)
    assert by_leaf["mlp/weights"] == (3 * 8 * 16, 1)
    assert by_leaf["mlp/bias_in"] == (2 * 16, 1)
    assert by_leaf["moe/router"] == (8 * 4, 2)
    assert by_leaf["moe/experts"] == (4 * 3 * 8 * 6, 2)
    assert by_leaf["moe/experts_bias"] == (4 * (2 * 6 + 8), 2)
    assert by_leaf["moe/shared"] == (3 * 8 * 12, 2)
    assert by_leaf["moe/shared_bias_in"] == (2 * 12, 2)
    assert by_leaf["moe/shared_bias_out"] == (8, 2)
    assert by_leaf["moe/shared_gate"] == (8, 2)
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


PUBLISHED = {  # of the files of weights; of timm the counts in its results table
    "albert-base-v2": 11_221_680,
    "blip-captioning-base": 247_414_076 - 30_524 * 768,  # words and head are one table
    "clip-vit-b-16": 149_620_737,
    "convnext-base": 88_591_464,
    "convnext-tiny": 28_589_128,
    "deberta-v3-base": 183_831_552 + 592_130,  # the encoder, and the head of two classes
    "deberta-v3-large": 434_012_160 + 1_051_650,
    "deberta-v3-small": 141_304_320 + 592_130,
    "deit-small": 22_050_664,
    "deit-tiny": 5_717_416,
    "dinov2-base": 86_579_712,  # without the token of masked patches
    "dinov2-large": 304_367_616,
    "dinov2-small": 22_056_192,
    "detr-resnet-50": 41_501_895,
    "distilbert-base": 66_985_530,
    "distilbert-base-cased": 65_190_912 + 621_124,  # the encoder, and the head of its vocabulary
    "distilbert-base-multilingual": 134_734_080 + 711_675,
    "efficientnet-b0": 5_288_548,
    "electra-base": 109_482_240 + 769,  # keras-hub with its pooler, and a row of the head
    "electra-large": 335_141_888 + 1_025,
    "electra-small": 13_548_800 + 257,
    "esm2-650m": 651_043_254,
    "esm2-8m": 7_408_960 + 103_514,
    "gemma-3-4b-vl": 4_300_079_472,
    "got-ocr2": 560_528_640,  # of its class, with the tower
    "hubert-base": 94_371_712 + 24_608,  # the encoder, and the head of 32 letters
    "m2m100-418m": 483_905_536,
    "mobilenetv3-large": 5_483_032,
    "mobilenetv3-small": 2_542_856,
    "modernbert-base": 149_655_232,
    "mpnet-base": 109_518_527,
    "nllb-200-distilled-600m": 615_073_792,
    "pegasus-xsum": 569_748_480,
    "qwen2.5-vl-3b": 3_754_622_976,
    "qwen2.5-vl-7b": 8_292_166_656,
    "resnet-101": 44_549_160,
    "resnet-18": 11_689_512,
    "resnet-34": 21_797_672,
    "sam-vit-base": 93_735_728,
    "sd-1.5-unet": 859_520_964,
    "sdxl-unet": 2_567_463_684,
    "segformer-b0": 3_752_694,
    "siglip-base-patch16-224": 203_155_970,
    "siglip-so400m-patch14-384": 877_961_291 - 729 - 64,  # keras-hub's without its position ids
    "swin-base": 87_768_224,
    "swin-tiny": 28_288_354,
    "vit-b-16-in21k": 85_798_656 + 1_538,  # the encoder, and the head of two classes
    "vit-l-16-in21k": 303_301_632 + 2_050,
    "wav2vec2-large": 315_438_720 + 32_800,
    "wavlm-base": 94_381_936 + 24_608,
    "whisper-base": 72_593_920,
    "whisper-large-v2": 1_543_304_960,
    "whisper-large-v3": 1_543_490_560,
    "whisper-large-v3-turbo": 808_878_080,
    "whisper-small": 241_734_912,
    "whisper-tiny": 37_760_640,
}
TABLE = Path(__file__).parents[1] / "benchmarks" / "traced_hub.toml"


@pytest.mark.parametrize("name", PUBLISHED)
def test_traced_files_have_the_parameters_of_the_published_weights(name: str) -> None:
    model = catalog.load("models", ModelSpec, name)
    assert parameter_count(model) == PUBLISHED[name]


@pytest.mark.parametrize(("name", "row"), tomllib.loads(TABLE.read_text("utf-8")).items())
def test_traced_files_are_those_of_their_table(name: str, row: dict[str, Any]) -> None:
    model = catalog.load("models", ModelSpec, name)
    assert (model.title, list(model.hub)) == (row["title"], row["hub"])
    assert row.get("read", "the defaults of its class") in model.source or "timm" in row["kind"]
    assert {catalog.find("models", hub).stem for hub in row["hub"]} == {name}


@pytest.mark.parametrize("name", ["esm2-8m", "siglip-base-patch16-224", "swin-tiny", "wavlm-base"])
def test_products_of_traced_blocks_have_no_mask(name: str) -> None:
    """Causal attention, not a product, shows that a model continues a text."""
    assert of_samples(model(name))
    assert not any(of_samples(model(other)) for other in ("got-ocr2", "whisper-tiny"))


def test_language_models_have_no_traced_blocks() -> None:
    counts = [parameter_count(each) for each in language_models()]
    assert counts == sorted(counts)
    assert not any(each.traced or of_samples(each) for each in language_models())
    assert {"gpt2", "llama-3.1-405b"} <= {each.name for each in language_models()}
