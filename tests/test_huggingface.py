"""Reading a Hugging Face config.json: catalogue shapes, what is inferred, what is refused, and
hostile files."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from plans import flat_of

from planner.formulas.params import parameter_count
from planner.inputs import catalog
from planner.inputs.huggingface import read_config
from planner.specs.base import PlanError
from planner.specs.layers import layers_of
from planner.specs.model import ModelSpec

# One config.json per catalogue entry: the shape as published, with the other keys such files carry.
# OPT-175B and Nemotron-4 have no such file of their own and are written in the form of their
# family.
CONFIGS = sorted((Path(__file__).parent / "configs").glob("*.json"))
ORIGIN = {"name", "title", "aliases", "hub", "source", "published"}

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 80,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 96,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 48,
}
MPT = {
    "model_type": "mpt",
    "vocab_size": 96,
    "d_model": 32,
    "n_layers": 3,
    "n_heads": 4,
    "max_seq_len": 48,
}
QWEN3_MOE = {
    **LLAMA,
    "model_type": "qwen3_moe",
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
}
DEEPSEEK = {
    **LLAMA,
    "model_type": "deepseek_v3",
    "num_key_value_heads": 4,
    "q_lora_rank": None,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "moe_intermediate_size": 24,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "first_k_dense_replace": 1,
}
FALCON = {
    "model_type": "falcon",
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}


def reads(
    tmp_path: Path, config: object, *without: str, **changes: Any
) -> tuple[ModelSpec, list[str]]:
    path = tmp_path / "config.json"
    if isinstance(config, dict):
        config = json.dumps(
            {key: value for key, value in {**config, **changes}.items() if key not in without}
        )
    path.write_bytes(config if isinstance(config, bytes) else str(config).encode())
    return read_config(path)


def refusal(tmp_path: Path, config: object, *without: str, **changes: Any) -> str:
    with pytest.raises(PlanError) as error:
        reads(tmp_path, config, *without, **changes)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_gives_the_catalogue_shape(path: Path) -> None:
    spec, _ = read_config(path)
    entry = catalog.load("models", ModelSpec, path.stem)
    assert spec.model_dump(exclude=ORIGIN) == entry.model_dump(exclude=ORIGIN)
    assert spec.name == path.stem


def test_model_is_named_after_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    assert reads(folder, LLAMA)[0].name == "my-llama"


def test_what_the_file_does_not_state_is_said(tmp_path: Path) -> None:
    _, notes = reads(tmp_path, LLAMA, "num_key_value_heads")
    assert "num_key_value_heads not given: 4, as num_attention_heads" in notes
    assert "head_dim not given: 8, hidden_size / num_attention_heads" in notes
    assert "tie_word_embeddings not given: false, as transformers assumes" in notes
    _, notes = reads(tmp_path, GPT2)
    assert "n_inner not given: 128, 4 x hidden width" in notes
    assert "tie_word_embeddings not given: true, as transformers assumes" in notes


def test_null_head_dim_and_spellings_of_transformers_5(tmp_path: Path) -> None:
    old, _ = reads(tmp_path, LLAMA, rope_theta=500000.0, torch_dtype="bfloat16")
    new, _ = reads(
        tmp_path, LLAMA, head_dim=None, dtype="bfloat16", rope_parameters={"rope_theta": 5e5}
    )
    assert old == new


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_context_is_the_one_before_rotary_scaling(tmp_path: Path, key: str) -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
    spec, notes = reads(tmp_path, LLAMA, max_position_embeddings=131072, **{key: scaling})
    assert spec.max_positions == 8192
    assert "context 8192: rotary scaling extends it to 131072 after the main training" in notes


def test_sliding_windows(tmp_path: Path) -> None:
    def window(**config: Any) -> tuple[int | None, int]:
        spec, _ = reads(tmp_path, {**LLAMA, "head_dim": 8, **config})
        return flat_of(spec).attention_window, flat_of(spec).window_every

    full, sliding = "full_attention", "sliding_attention"
    assert window(model_type="mistral", sliding_window=16) == (16, 1)
    assert window(model_type="mistral", sliding_window=None) == (None, 1)
    assert window(model_type="mistral") == (4096, 1)
    assert window(model_type="qwen2", sliding_window=16, use_sliding_window=False) == (None, 1)
    assert window(
        model_type="qwen2", sliding_window=16, use_sliding_window=True, max_window_layers=0
    ) == (16, 1)
    assert window(model_type="gemma2", sliding_window=16) == (16, 2)
    assert window(model_type="gemma2", sliding_window=16, layer_types=[full] * 6) == (None, 1)
    assert window(
        model_type="gemma2", sliding_window=16, layer_types=[sliding, full, full] * 2
    ) == (16, 3)


def test_irregular_windows_are_a_stack(tmp_path: Path) -> None:
    qwen = {**LLAMA, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 16}
    late, _ = reads(tmp_path, qwen, max_window_layers=4)
    assert layers_of(late).order == (0, 0, 0, 0, 1, 1)
    kinds = ["sliding_attention"] * 5 + ["full_attention"]
    assert layers_of(reads(tmp_path, qwen, layer_types=kinds)[0]).counts == (5, 1)
    assert "one per layer, 6" in refusal(tmp_path, qwen, layer_types=kinds[1:])
    assert "'linear_attention' is not understood" in refusal(
        tmp_path, qwen, layer_types=[*kinds[1:], "linear_attention"]
    )
    assert "sliding_window" in refusal(
        tmp_path, qwen, layer_types=["sliding_attention"] * 6, sliding_window=None
    )


def test_experts_in_every_second_layer(tmp_path: Path) -> None:
    spec, _ = reads(tmp_path, QWEN3_MOE, decoder_sparse_step=2)
    moe = flat_of(spec).moe
    assert moe is not None
    assert (moe.dense_layers, moe.every, spec.moe_layers) == (1, 2, 3)
    spec, _ = reads(tmp_path, DEEPSEEK, moe_layer_freq=2)  # layers 2 and 4 of 0..5
    moe = flat_of(spec).moe
    assert moe is not None
    assert (moe.dense_layers, moe.every, spec.moe_layers) == (2, 2, 2)


def test_deepseek_groups_and_extra_prediction_layer(tmp_path: Path) -> None:
    spec, notes = reads(tmp_path, DEEPSEEK, n_group=4, topk_group=2, num_nextn_predict_layers=1)
    assert spec.routed is not None
    assert spec.routed.group_limit == 2
    left_out = "num_mtp_layers 1 is not counted: multi-token prediction is left out"
    assert f"{left_out}, --mtp trains it" in notes
    greedy = {"n_group": 4, "topk_group": 2, "topk_method": "greedy"}
    spec, _ = reads(tmp_path, {**DEEPSEEK, **greedy, "model_type": "deepseek_v2"})
    assert spec.routed is not None
    assert spec.routed.group_limit is None


def test_falcon_variants(tmp_path: Path) -> None:
    spec, notes = reads(tmp_path, FALCON, num_kv_heads=4)
    falcon = flat_of(spec)
    assert (falcon.kv_heads, falcon.norms_per_layer, falcon.parallel_block) == (1, 1, True)
    assert "num_kv_heads 4 is not used: multi_query true means 1" in notes
    spec, _ = reads(tmp_path, FALCON, new_decoder_architecture=True, num_kv_heads=2)
    assert (flat_of(spec).kv_heads, flat_of(spec).norms_per_layer) == (2, 2)
    spec, _ = reads(tmp_path, FALCON, multi_query=False, parallel_attn=False, alibi=True, bias=True)
    assert (
        flat_of(spec).kv_heads,
        flat_of(spec).norms_per_layer,
        spec.positions,
        flat_of(spec).bias_qkv,
    ) == (4, 2, "alibi", True)
    null, _ = reads(tmp_path, FALCON, multi_query=None, parallel_attn=None)  # false there as well
    assert (flat_of(null).kv_heads, flat_of(null).norms_per_layer) == (4, 2)


def test_mpt_of_llm_foundry_is_its_catalogue_entry(tmp_path: Path) -> None:
    shape = {
        "d_model": 4096,
        "n_heads": 32,
        "n_layers": 32,
        "max_seq_len": 2048,
        "vocab_size": 50368,
    }
    foundry = {
        "no_bias": False,
        "learned_pos_emb": True,
        "attn_config": {"attn_impl": "flash", "alibi": False},
    }
    spec, _ = reads(tmp_path, {**MPT, **shape, **foundry})
    entry = catalog.load("models", ModelSpec, "mpt-7b")
    assert spec.model_dump(exclude=ORIGIN) == entry.model_dump(exclude=ORIGIN)
    released, _ = reads(tmp_path, {**MPT, "no_bias": True, "attn_config": {"alibi": True}})
    assert (released.positions, flat_of(released).bias_qkv, released.norm_bias) == (
        "alibi",
        False,
        False,
    )


def test_other_heads_and_quantization_are_mentioned(tmp_path: Path) -> None:
    _, notes = reads(
        tmp_path,
        LLAMA,
        architectures=["LlamaForSequenceClassification"],
        quantization_config={"bits": 4},
    )
    assert (
        "architectures names LlamaForSequenceClassification: counted with a language-model head"
        in notes
    )
    assert any(note.startswith("quantization_config is not used") for note in notes)


def test_harmless_extras_are_accepted(tmp_path: Path) -> None:
    extras = {
        "_name_or_path": "somewhere/else",
        "attn_implementation": "flash_attention_2",
        "auto_map": {"AutoConfig": "a.B"},
        "architectures": ["LlamaForCausalLM"],
        "mask_token_id": 3,
        "some_new_option": None,
        "transformers_version": "5.0.0",
        "use_cache": True,
    }
    assert reads(tmp_path, LLAMA, **extras)[0] == reads(tmp_path, LLAMA)[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "lama"}, ["model_type: 'lama'", "did you mean", "llama"]),
        ({"model_type": "oldmo"}, ["model_type: 'oldmo'", "did you mean olmo", "layers = 6"]),
        ({"model_type": "albert"}, ["model_type: 'albert'", "an encoder that the catalogue has"]),
        ({"peft_type": "LORA"}, ["peft_type: 'LORA'", "is an adapter"]),
        ({"_class_name": "UNet2DConditionModel"}, ["_class_name", "diffusion"]),
        (
            {"num_hidden_layers": None, "vocab_size": None},
            ["num_hidden_layers, vocab_size", "are missing"],
        ),
        ({"model_type": None}, ["model_type", "is missing"]),
        ({"model_type": ["llama"]}, ["model_type", "types are known"]),
        ({"hidden_size": None}, ["hidden_size", "is missing"]),
        ({"hidden_size": "4096"}, ["hidden_size: '4096'", "whole number"]),
        ({"hidden_size": 32.0}, ["hidden_size: 32.0", "whole number"]),
        ({"hidden_size": True}, ["hidden_size: True", "whole number"]),
        ({"hidden_size": [32]}, ["hidden_size", "whole number"]),
        ({"num_hidden_layers": -2}, ["num_hidden_layers: -2", "between 1"]),
        ({"vocab_size": 0}, ["vocab_size: 0", "between 1"]),
        ({"vocab_size": 10**12}, ["vocab_size", "between 1"]),
        ({"num_attention_heads": 5}, ["num_attention_heads: 5", "divide"]),
        ({"num_key_value_heads": 3}, ["multiple of kv_heads 3"]),
        ({"n_layer": 7}, ["n_layer: 7", "unknown key for llama"]),
        ({"hidden_act": "xielu"}, ["hidden_act: 'xielu'", "silu"]),
        ({"mlp_bias": "no"}, ["mlp_bias: 'no'", "true or false"]),
        ({"attention_dropout": 1.5}, ["attention_dropout: 1.5", "0 to 1"]),
        ({"rope_scaling": "linear"}, ["rope_scaling: 'linear'", "object"]),
        (
            {"rope_scaling": {"original_max_position_embeddings": "4k"}},
            ["rope_scaling.original_max", "'4k'"],
        ),
        ({"architectures": "Llama"}, ["architectures", "list"]),
        ({"pruned_heads": {"1": [0]}}, ["pruned_heads"]),
        ({"is_encoder_decoder": True}, ["is_encoder_decoder: True", "only decoders of this type"]),
        (
            {"num_key_value_head": 8},
            ["num_key_value_head: 8", "unknown key", "did you mean num_key_value_heads"],
        ),
        ({"use_gated_attention": True}, ["use_gated_attention: True", "unknown key for llama"]),
        (
            {"use_bias": False},
            ["use_bias: False", "unknown key"],
        ),  # off may mean other weights than absent
        ({"red\x1b[31m": 1}, ["'red\\x1b[31m': 1", "unknown key"]),
        ({"red\x1b[31m\ud800": 1}, ["has 'red\\x1b[31m\\ud800': half of a surrogate pair"]),
    ],
)
def test_what_is_not_understood_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:
    message = refusal(tmp_path, LLAMA, **changes)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("config", "changes", "word"),
    [
        (QWEN3_MOE, {"use_sliding_window": True}, "use_sliding_window"),
        (QWEN3_MOE, {"num_experts": 1}, "num_experts"),
        (QWEN3_MOE, {"num_experts_per_tok": 7}, "exceeds experts 6"),
        (DEEPSEEK, {"num_key_value_heads": 2}, "num_key_value_heads"),
        (DEEPSEEK, {"topk_method": "random"}, "topk_method"),
        (DEEPSEEK, {"first_k_dense_replace": 7}, "exceeds the 6 layers"),
        (GPT2, {"add_cross_attention": True}, "add_cross_attention"),
        (MPT, {"attn_config": {"qk_ln": True}}, "attn_config.qk_ln"),
        (MPT, {"attn_config": {"new_attention": 3}}, "attn_config.new_attention"),
        (MPT, {"attn_config": [1]}, "attn_config"),
        (MPT, {"ffn_config": {"ffn_type": "mptglu"}}, "ffn_config.ffn_type"),
        (MPT, {"expansion_ratio": 2.5}, "expansion_ratio"),
    ],
)
def test_what_a_family_does_not_express(
    tmp_path: Path, config: dict[str, Any], changes: dict[str, Any], word: str
) -> None:
    assert word in refusal(tmp_path, config, **changes)


def test_numbers_that_transformers_makes_up_are_said(tmp_path: Path) -> None:
    mistral = {**LLAMA, "model_type": "mistral", "num_attention_heads": 8}
    spec, notes = reads(tmp_path, mistral, "num_key_value_heads")
    assert flat_of(spec).kv_heads == 8
    assert "num_key_value_heads not given: 8, as transformers assumes" in notes
    null, notes = reads(tmp_path, mistral, num_attention_heads=4, num_key_value_heads=None)
    assert flat_of(null).kv_heads == 4
    assert "num_key_value_heads not given: 4, as num_attention_heads" in notes
    _, notes = reads(tmp_path, DEEPSEEK, "q_lora_rank")
    assert "q_lora_rank not given: 1536, as transformers assumes" in notes


def test_dense_layers_and_biases_at_any_place_are_read(tmp_path: Path) -> None:
    spec, _ = reads(tmp_path, QWEN3_MOE, mlp_only_layers=[0, 3])
    assert spec.moe_layers == 4
    without, having = (reads(tmp_path, DEEPSEEK, attention_bias=on)[0] for on in (False, True))
    # of the way down to keys and values, and of the output
    assert parameter_count(having) - parameter_count(without) == 6 * (10 + 4 + 32)


def test_embeddings_narrower_than_the_model_are_refused(tmp_path: Path) -> None:
    opt = {
        **{key: value for key, value in LLAMA.items() if key != "intermediate_size"},
        "ffn_dim": 80,
    }
    del opt["num_key_value_heads"]
    assert "word_embed_proj_dim: 16" in refusal(
        tmp_path, opt, model_type="opt", word_embed_proj_dim=16
    )


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"model_type = 'llama'", "not valid JSON"),
        (b"[1, 2]", "must be a JSON object"),
        (b"3", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"model_type": "ll\xe4ma"}', "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (b'{"model_type": "llama", "hidden_size": NaN}', "hidden_size: nan"),
        (b'{"model_type": "llama", "rope_theta": 1e400}', "rope_theta: inf"),
        (
            b'{"model_type": "llama", "rope_scaling": {"factors": [1, -Infinity]}}',
            "rope_scaling.factors[1]: -inf",
        ),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "more than 40 digits"),
        (b'{"hidden_size": 1, "hidden_size": 2}', "'hidden_size' is given twice"),
        (b"[" * 100_000, "nested"),
        (b'{"a": ' * 50 + b"1" + b"}" * 50, "nested deeper than"),
        (b'"' + b"x" * 2_000_001 + b'"', "is larger than"),
    ],
)
def test_hostile_files(tmp_path: Path, content: bytes, word: str) -> None:
    message = refusal(tmp_path, content)
    assert word in message
    assert len(message) < 1000


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read"):
        read_config(tmp_path / "config.json")
    with pytest.raises(PlanError, match="is a folder"):
        read_config(tmp_path)


VARIANTS = [
    *(json.loads(path.read_text("utf-8")) for path in CONFIGS),
    MPT,
    {**LLAMA, "model_type": "phi"},
]
FIRST_OF_FAMILY = {config["model_type"]: config for config in reversed(VARIANTS)}
HOSTILE: list[Any] = [None, -1, 0, 1.5, 10**30, "x" * 300, True, [None], {"a": {"b": []}}]


@pytest.mark.parametrize("family", sorted(FIRST_OF_FAMILY))
def test_any_value_under_any_key_is_read_or_refused(tmp_path: Path, family: str) -> None:
    """One key at a time gets a value of another kind: the answer is a model or a PlanError, never a
    traceback."""
    config = FIRST_OF_FAMILY[family]
    for key in config:
        for value in HOSTILE:
            with contextlib.suppress(PlanError):
                spec, _ = reads(tmp_path, {**config, key: value})
                assert parameter_count(spec) > 0
