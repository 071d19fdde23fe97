"""Parameter counts of configs against transformers itself, built on the meta device: equal to the
unit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from planner.formulas.params import active_parameter_count, parameter_count
from planner.inputs.huggingface import read_config
from planner.specs.layers import layer_words, words_of
from planner.specs.parts.attention import Attention

pytestmark = pytest.mark.oracle

CONFIGS = Path(__file__).parent / "configs"


def oracle(data: dict[str, Any]) -> tuple[int, int]:
    """(elements of all routed experts, elements of the whole model) in transformers; a tied head
    counts once."""
    fields = {
        key: value
        for key, value in data.items()
        if key not in ("model_type", "quantization_config", "auto_map")
    }
    config = transformers.AutoConfig.for_model(data["model_type"], **fields)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    routed = sum(
        weight.numel() for name, weight in model.named_parameters() if ".mlp.experts." in name
    )
    return routed, sum(weight.numel() for weight in model.parameters())


def compare(path: Path, data: dict[str, Any]) -> None:
    spec, _ = read_config(path)
    routed, total = oracle(data)
    assert parameter_count(spec) == total
    idle = (
        routed * (spec.routed.experts - spec.routed.experts_per_token) // spec.routed.experts
        if spec.routed
        else 0
    )
    assert active_parameter_count(spec) == total - idle


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_catalogue_config(path: Path) -> None:
    compare(path, json.loads(path.read_text("utf-8")))


LLAMA = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 80,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
DENSE = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
GPT2 = {"vocab_size": 96, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 48}
OPT = {**{key: value for key, value in DENSE.items() if key != "intermediate_size"}, "ffn_dim": 80}
BLOOM = {"vocab_size": 96, "hidden_size": 32, "n_layer": 3, "n_head": 4, "pad_token_id": 0}
FALCON = {key: value for key, value in DENSE.items() if key != "intermediate_size"}
MPT = {"vocab_size": 96, "d_model": 32, "n_layers": 3, "n_heads": 4, "max_seq_len": 48}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT = {
    **LLAMA,
    "num_key_value_heads": 4,
    "q_lora_rank": 12,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "moe_intermediate_size": 24,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "first_k_dense_replace": 2,
    "n_group": 1,
    "topk_group": 1,
}

SMALL = {
    "llama": ("llama", LLAMA),
    "llama biases, own head width": (
        "llama",
        {
            **LLAMA,
            "attention_bias": True,
            "mlp_bias": True,
            "head_dim": 12,
            "tie_word_embeddings": True,
        },
    ),
    "llama, heads not given": ("llama", DENSE),
    "mistral": ("mistral", {**LLAMA, "head_dim": 16}),
    "mixtral": ("mixtral", {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2": ("qwen2", LLAMA),
    "qwen2 tied": ("qwen2", {**LLAMA, "tie_word_embeddings": True}),
    "qwen2_moe": ("qwen2_moe", {**LLAMA, **EXPERTS, "shared_expert_intermediate_size": 40}),
    "qwen2_moe, every second layer": (
        "qwen2_moe",
        {
            **LLAMA,
            **EXPERTS,
            "shared_expert_intermediate_size": 40,
            "decoder_sparse_step": 2,
            "qkv_bias": False,
        },
    ),
    "qwen3": ("qwen3", {**LLAMA, "head_dim": 16}),
    "qwen3 biases": ("qwen3", {**LLAMA, "head_dim": 16, "attention_bias": True}),
    "qwen3_moe": ("qwen3_moe", {**LLAMA, **EXPERTS, "head_dim": 16}),
    "qwen3_moe, every third layer": (
        "qwen3_moe",
        {**LLAMA, **EXPERTS, "head_dim": 16, "decoder_sparse_step": 3},
    ),
    "gemma": ("gemma", {**LLAMA, "num_key_value_heads": 1, "head_dim": 16}),
    "gemma untied": (
        "gemma",
        {**LLAMA, "head_dim": 16, "tie_word_embeddings": False, "attention_bias": True},
    ),
    "gemma2": ("gemma2", {**LLAMA, "head_dim": 16}),
    "phi": ("phi", DENSE),
    "phi grouped, norms on queries and keys": ("phi", {**LLAMA, "qk_layernorm": True}),
    "phi3": ("phi3", LLAMA),
    "nemotron": ("nemotron", {**LLAMA, "attention_bias": True, "mlp_bias": True}),
    "gpt2": ("gpt2", GPT2),
    "gpt2 own MLP width": ("gpt2", {**GPT2, "n_inner": 72, "tie_word_embeddings": False}),
    "gpt_neox": ("gpt_neox", DENSE),
    "gpt_neox sequential, no attention bias": (
        "gpt_neox",
        {
            **DENSE,
            "use_parallel_residual": False,
            "attention_bias": False,
            "tie_word_embeddings": True,
        },
    ),
    "opt": ("opt", OPT),
    "opt without biases": ("opt", {**OPT, "enable_bias": False, "tie_word_embeddings": False}),
    "opt, norm after": ("opt", {**OPT, "do_layer_norm_before": False}),
    "bloom": ("bloom", BLOOM),
    "falcon multi-query": ("falcon", FALCON),
    "falcon grouped": ("falcon", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon grouped, one norm": (
        "falcon",
        {
            **FALCON,
            "new_decoder_architecture": True,
            "num_kv_heads": 2,
            "num_ln_in_parallel_attn": 1,
        },
    ),
    "falcon rw": (
        "falcon",
        {
            **FALCON,
            "multi_query": False,
            "parallel_attn": False,
            "alibi": True,
            "bias": True,
            "ffn_hidden_size": 72,
        },
    ),
    "mpt": ("mpt", MPT),
    "deepseek_v2": ("deepseek_v2", LATENT),
    "deepseek_v2 direct queries": (
        "deepseek_v2",
        {**LATENT, "q_lora_rank": None, "first_k_dense_replace": 0},
    ),
    "deepseek_v3": ("deepseek_v3", LATENT),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_config(name: str, tmp_path: Path) -> None:
    family, fields = SMALL[name]
    data = {"model_type": family, **fields}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(data), "utf-8")
    compare(path, data)


@pytest.mark.parametrize("name", SMALL)
def test_config_as_transformers_writes_it(name: str, tmp_path: Path) -> None:
    """What `save_pretrained` of the installed transformers writes is read without an unknown key,
    as the same shape."""
    family, fields = SMALL[name]
    first, second = tmp_path / "config.json", tmp_path / "saved"
    first.write_text(json.dumps({"model_type": family, **fields}), "utf-8")
    transformers.AutoConfig.for_model(family, **fields).save_pretrained(second)
    same = {"name", "title", "source"}
    assert read_config(second / "config.json")[0].model_dump(exclude=same) == read_config(first)[
        0
    ].model_dump(exclude=same)


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("gemma2", {**LLAMA, "head_dim": 16}),
        (
            "qwen2",
            {**LLAMA, "use_sliding_window": True, "max_window_layers": 0, "sliding_window": 16},
        ),
        (
            "qwen2",
            {**LLAMA, "use_sliding_window": True, "max_window_layers": 5, "sliding_window": 16},
        ),
        ("qwen3", {**LLAMA, "head_dim": 16, "sliding_window": 16}),
    ],
)
def test_windowed_layers(family: str, fields: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": family, **fields}), "utf-8")
    spec, _ = read_config(path)
    kinds = transformers.AutoConfig.for_model(family, **fields).layer_types
    windows = {part.name for part in spec.parts if isinstance(part, Attention) and part.window}
    windowed = [words_of(text)[0][0] in windows for _, text in layer_words(spec)]
    assert windowed == [kind == "sliding_attention" for kind in kinds]
