"""Every model type of transformers that is read: parameters equal to transformers' own, to the
unit, for the default configuration and for published ones."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from plans import flat_of

from planner.formulas.params import parameter_count
from planner.inputs.huggingface import KNOWN, read_config
from planner.inputs.huggingface.document import Document
from planner.inputs.huggingface.nested import language_model
from planner.inputs.huggingface.typed import TYPES, defaults
from planner.specs.base import PlanError
from planner.specs.decoder import decoder_of
from planner.specs.model import ModelSpec
from planner.specs.parts import Attention

DATA = Path(__file__).parent / "data"
# configurations (names and numbers, with their source) and what transformers 5.23 counts for them:
# benchmarks/hf_types.py
CONFIGS = json.loads((DATA / "hf_configs.json").read_text("utf-8"))
COUNTS = json.loads((DATA / "hf_counts.json").read_text("utf-8"))
LEAST = 150  # types of transformers 5.23 that are to be read, of 189
LEAST_PUBLISHED = 105  # types of language models with a published file

# transformers allocates the first projection of zero experts as well, which compute nothing
LARGER_THERE = {"longcat_flash": 256 * 2 * 2048 * 6144 * 28}


def default_config(family: str) -> dict[str, Any]:
    """The keys and defaults of a type's class, as a config.json."""
    known = defaults()[family]
    keys = {**known["keys"], **CONFIGS["defaults"].get(family, {}), "model_type": family}
    if "text" in known:
        keys["text_config"] = default_config(known["text"])
    return keys


def read(folder: Path, config: dict[str, Any]) -> tuple[ModelSpec, list[str]]:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return read_config(path)


def accepted(family: str) -> bool:
    return family in KNOWN or defaults().get(family, {}).get("text") in KNOWN


def test_defaults_count_what_transformers_counts(tmp_path: Path) -> None:
    exact = []
    for family in (name for name in COUNTS if name in defaults() and accepted(name)):
        want = COUNTS[family]["parameters"] - LARGER_THERE.get(family, 0)
        got = parameter_count(read(tmp_path, default_config(family))[0])
        assert got == want, family
        exact.append(family)
    assert len(exact) - len(LARGER_THERE) >= LEAST, len(exact)


def test_published_configurations_count_what_transformers_counts(tmp_path: Path) -> None:
    for name, row in CONFIGS["published"].items():
        assert row["source"], name
        spec, _ = read(tmp_path, row["config"])
        assert parameter_count(spec) == COUNTS[name]["parameters"], name
    files = [json.loads(path.read_text("utf-8")) for path in (DATA.parent / "configs").glob("*")]
    files += [row["config"] for row in CONFIGS["published"].values()]
    seen = {language_model(Document("", config), config["model_type"])[1] for config in files}
    assert len(seen) >= LEAST_PUBLISHED, sorted(map(str, seen))


def test_what_a_file_leaves_out_is_what_transformers_assumes(tmp_path: Path) -> None:
    left = {"model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880}
    spec, notes = read(tmp_path, {**left, "num_local_experts": 32})
    assert parameter_count(spec) == COUNTS["openai/gpt-oss-20b"]["parameters"]
    assert "head_dim not given: 64, as transformers assumes" in notes
    with pytest.raises(PlanError, match=r"num_hidden_layers.*the file must state it"):
        read(tmp_path, {"model_type": "gpt_oss", "hidden_size": 2880})


def test_windows_chunks_and_kinds_are_read(tmp_path: Path) -> None:
    yarn = {"rope_type": "yarn", "original_max_position_embeddings": 4096}
    oss, _ = read(tmp_path, {**default_config("gpt_oss"), "rope_parameters": yarn})
    assert [part.name for part in oss.parts] == ["window", "moe", "attention"]
    window = oss.parts[0]
    assert isinstance(window, Attention)
    assert (window.window, window.sinks) == (128, True)
    assert oss.stack[0].layers == ("window + moe", "attention + moe")
    assert oss.max_positions == 4096  # before YaRN
    llama, _ = read(tmp_path, default_config("llama4_text"))
    chunked = next(part for part in llama.parts if part.name == "chunked")
    assert isinstance(chunked, Attention)
    assert chunked.chunk == 8192
    kimi, _ = read(tmp_path, default_config("kimi_linear"))
    assert {part.type for part in kimi.parts} == {"kimi_delta", "latent", "mlp", "moe"}


def test_layers_that_are_alike_make_a_plain_decoder(tmp_path: Path) -> None:
    for family in ("olmo2", "granite", "glm4", "cohere", "gptj", "seed_oss", "starcoder2"):
        spec, _ = read(tmp_path, default_config(family))
        assert decoder_of(spec), family
    glm4, _ = read(tmp_path, default_config("glm4"))
    assert (
        flat_of(glm4).norms_per_layer,
        flat_of(glm4).bias_qkv,
        flat_of(glm4).bias_attention_out,
    ) == (4, True, False)
    assert decoder_of(read(tmp_path, default_config("gpt_oss"))[0]) is None


def test_the_language_model_of_several_parts_is_read(tmp_path: Path) -> None:
    row = CONFIGS["published"]["Qwen/Qwen3-VL-8B-Instruct"]["config"]
    inner = {**row["text_config"]}
    spec, notes = read(tmp_path, {**row, "vision_config": {"depth": 27}, "image_token_id": 5})
    assert spec.hidden == inner["hidden_size"]
    assert "the language model of text_config is planned" in notes
    with pytest.raises(PlanError, match="text_config: is missing"):
        read(tmp_path, {"model_type": "gemma3"})


@pytest.mark.parametrize(
    ("tower", "says"),
    [
        (None, "without other parts: dpplan trace "),
        ({"model_type": "siglip_vision_model"}, "without vision_config: dpplan trace "),
        # 27 layers of 4 x 1152^2 of attention and 2 x 1152 x 4304 of an MLP
        (
            {"num_hidden_layers": 27, "hidden_size": 1152, "intermediate_size": 4304},
            "without vision_config (layers of 411 M parameters at least): ",
        ),
        ({"depth": 32, "embed_dim": 1280, "mlp_ratio": 4}, "(layers of 629 M parameters"),
    ],
)
def test_parts_that_are_left_out_are_named_and_how_to_trace_them(
    tmp_path: Path, tower: dict[str, Any] | None, says: str
) -> None:
    """A model of the catalogue of this class and these sizes was traced with all of its parts."""
    text = dict(CONFIGS["published"]["google/gemma-3-4b-it"]["config"]["text_config"])
    parts = {} if tower is None else {"vision_config": tower, "quantization_config": {"bits": 4}}
    spec, _ = read(tmp_path, {"model_type": "gemma3", "text_config": text, **parts})
    assert spec.left_out.startswith("planned as its language model, without ")
    assert says in spec.left_out
    assert "config.json --out model.toml" in spec.left_out
    assert spec.left_out.endswith("as gemma-3-4b-vl of the catalogue does")
    other, _ = read(tmp_path, {"model_type": "gemma3", "text_config": {**text, "hidden_size": 512}})
    assert other.left_out.endswith("counts all parts")
    assert not read(tmp_path, {**text, "model_type": "gemma3_text"})[0].left_out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"no_such_key": 3}, ["no_such_key: 3", "unknown key for olmo2"]),
        ({"layer_types": ["linear_attention"] * 4}, ["layer_types", "full_attention"]),
        ({"model_type": "zamba"}, ["missing here is a block of attention and MLP", "layers = 4"]),
        ({"model_type": "of_mine", "auto_map": {"A": "b"}}, ["its own code", "hidden = 64"]),
        ({"model_type": "of_mine", "kv_lora_rank": 8, "num_experts": 4}, ["type latent, moe"]),
        ({"model_type": "zamba2"}, ["a block of attention and MLP that several layers share"]),
        ({"hidden_size": "64"}, ["hidden_size", "whole number"]),
        ({"num_hidden_layers": 10**6}, ["num_hidden_layers", "between 1 and 10,000"]),
    ],
)
def test_what_is_not_understood_is_named(
    tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:
    config = {
        "model_type": "olmo2",
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
    }
    with pytest.raises(PlanError) as error:
        read(tmp_path, {**config, **changes})
    assert all(word in str(error.value) for word in words), str(error.value)
    assert len(str(error.value)) < 1000


def test_no_key_that_shapes_a_tensor_is_taken_for_a_constant(tmp_path: Path) -> None:
    """Names like those constants have, which shape tensors in one code or another."""
    keys = (
        *("ffn_dim_multiplier", "qkv_multipliers", "pad_vocab_size_multiple", "kda_num_heads"),
        *("index_rope_head_dim", "time_step_rank", "moe_capacity_factor", "use_mla"),
        *("block_overlap", "conv_enabled", "full_attention_interval", "first_k_dense_replace"),
        *("sliding_window_pattern", "linear_attn_config", "moe_router_rank"),
    )
    for key in keys:
        value = {"size": 3} if key.endswith("_config") else 3
        with pytest.raises(PlanError, match=f"{key}: .*unknown key for olmo2"):
            read(tmp_path, {**default_config("olmo2"), key: value})


def test_rules_of_an_order_say_nothing_beside_a_list(tmp_path: Path) -> None:
    olmo = {**default_config("olmo2"), "full_attention_interval": 4}
    listed = {**olmo, "layer_types": ["full_attention"] * olmo["num_hidden_layers"]}
    assert decoder_of(read(tmp_path, listed)[0])
    with pytest.raises(PlanError, match="full_attention_interval"):
        read(tmp_path, olmo)


def test_layers_that_choose_keys_are_read_from_a_pattern(tmp_path: Path) -> None:
    glm = default_config("glm_moe_dsa")
    full = [i % 3 == 0 for i in range(glm["num_hidden_layers"])]
    types = {"indexer_types": ["full" if option else "shared" for option in full]}
    pattern = {"index_topk_pattern": "".join("S" if not option else "F" for option in full)}
    counts = [parameter_count(read(tmp_path, {**glm, **keys})[0]) for keys in (types, pattern, {})]
    assert counts[0] == counts[1] < counts[2]
    with pytest.raises(PlanError, match=r"index_topk_pattern: .*F or S for each of"):
        read(tmp_path, {**glm, "index_topk_pattern": "FS"})


def test_compressed_keys_are_read_by_the_rates_of_the_layers(tmp_path: Path) -> None:
    """The list goes on to the modules that predict further tokens, which are not counted."""
    v4 = {**default_config("deepseek_v4"), "num_hidden_layers": 4}
    spec, _ = read(tmp_path, {**v4, "compress_ratios": [0, 128, 4, 128, 0]})
    mixers = [part for part in spec.parts if part.type == "compressed"]
    assert [(part.name, part.rate) for part in mixers] == [
        ("window", 0),
        ("compressed", 128),
        ("chosen", 4),
    ]
    assert [repeat.layers[0].split()[0] for repeat in spec.stack][-1] == "compressed"
    with pytest.raises(PlanError, match=r"compress_ratios: .*one per layer, 4, of 0, 4, 128"):
        read(tmp_path, {**v4, "compress_ratios": [0, 8, 4, 128]})


def test_any_value_of_any_kind_is_read_or_refused(tmp_path: Path) -> None:
    """One odd value per key of one type in twelve."""
    odd: list[Any] = [None, -1, 1.5, 10**30, "x" * 300, True, [None], {"a": {"b": []}}]
    for place, family in enumerate(sorted(TYPES.keys() & defaults().keys())):
        if place % 12:
            continue
        config = default_config(family)
        for i, key in enumerate(config):
            with contextlib.suppress(PlanError):
                spec, _ = read(tmp_path, {**config, key: odd[i % len(odd)]})
                assert parameter_count(spec) > 0
