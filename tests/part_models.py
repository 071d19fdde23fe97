"""Small models of every part: keys of transformers' own config, and the same as a model of ours.

Long: one table.
"""

from __future__ import annotations

from typing import Any

from planner.specs.model import ModelSpec

H, VOCAB = 32, 96
BASE = {"vocab_size": VOCAB, "hidden_size": H, "num_hidden_layers": 4, "pad_token_id": 0}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
FLAT = {"heads": 4, "kv_heads": 2, "head_dim": 8}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 6,
}
EXPERTS = {"experts": 4, "experts_per_token": 2}


def _stack(*layers: str, times: int | None = None) -> dict[str, Any]:
    return {"layers": list(layers), "times": times}


LATENT = {
    "query_rank": 12,
    "kv_rank": 10,
    "nope_head_dim": 6,
    "rope_head_dim": 4,
    "value_head_dim": 5,
}
LATENT_KEYS = {
    "q_lora_rank": 12,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
}
MAMBA2 = {"type": "mamba2", "name": "mamba", "heads": 8, "head_dim": 8, "state": 16}
COMPRESSED = {
    "type": "compressed",
    "heads": 4,
    "head_dim": 16,
    "query_rank": 12,
    "window": 8,
    "out_groups": 2,
    "out_rank": 10,
}

# model_type, its config, and ours
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "qwen3_next": (
        {
            **BASE,
            **HEADS,
            **DELTA,
            "intermediate_size": 40,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 20,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        },
        {
            **FLAT,
            "moe": {**EXPERTS, "ffn_hidden": 24, "shared_ffn_hidden": 20, "shared_gate": True},
            "parts": [
                {
                    "type": "gated_delta",
                    "name": "linear",
                    "key_heads": 2,
                    "value_heads": 4,
                    "key_dim": 8,
                    "value_dim": 6,
                },
                {
                    **FLAT,
                    "type": "attention",
                    "name": "full",
                    "qk_norm": "per_head",
                    "output_gate": "per_element",
                },
            ],
            "stack": [_stack(*["linear + moe"] * 3, "full + moe")],
        },
    ),
    "olmo_hybrid": (
        {
            **BASE,
            **HEADS,
            **DELTA,
            "linear_num_value_heads": 2,
            "intermediate_size": 40,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        },
        {
            **FLAT,
            "ffn_hidden": 40,
            "qk_norm": "full",
            "parts": [
                {
                    "type": "gated_delta",
                    "name": "linear",
                    "key_heads": 2,
                    "value_heads": 2,
                    "key_dim": 8,
                    "value_dim": 6,
                }
            ],
            "stack": [_stack(*["linear + mlp"] * 3, "attention + mlp")],
        },
    ),
    "nemotron_h": (
        {
            **BASE,
            **HEADS,
            "layers_block_type": ["mamba", "moe", "attention", "mlp"],
            "mamba_num_heads": 8,
            "mamba_head_dim": 8,
            "ssm_state_size": 16,
            "n_groups": 2,
            "conv_kernel": 4,
            "intermediate_size": 40,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "moe_shared_expert_intermediate_size": 20,
            "n_group": 1,
            "topk_group": 1,
        },
        {
            **FLAT,
            "ffn_hidden": 40,
            "mlp": "plain",
            "activation": "relu2",
            "moe": {**EXPERTS, "ffn_hidden": 24, "shared_ffn_hidden": 20},
            "parts": [{**MAMBA2, "groups": 2}],
            "stack": [_stack("mamba", "moe", "attention", "mlp")],
        },
    ),
    "deepseek_v32": (
        {
            **BASE,
            **LATENT_KEYS,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "intermediate_size": 40,
            "moe_intermediate_size": 24,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "first_k_dense_replace": 1,
            "mlp_layer_types": ["dense"] + ["sparse"] * 3,
            "n_group": 1,
            "topk_group": 1,
            "index_n_heads": 3,
            "index_head_dim": 8,
            "index_topk": 16,
        },
        {
            "heads": 4,
            "kv_heads": 4,
            "head_dim": 10,
            "ffn_hidden": 40,
            "latent": {**LATENT, "index": {"heads": 3, "head_dim": 8, "top_k": 16}},
            "moe": {**EXPERTS, "ffn_hidden": 24, "shared_ffn_hidden": 24, "dense_layers": 1},
        },
    ),
    "falcon_h1": (
        {
            **BASE,
            **HEADS,
            "intermediate_size": 40,
            "mamba_d_ssm": 64,
            "mamba_n_heads": 8,
            "mamba_d_head": 8,
            "mamba_d_state": 16,
            "mamba_n_groups": 2,
            "mamba_rms_norm": True,
        },
        {
            **FLAT,
            "ffn_hidden": 40,
            "parts": [{**MAMBA2, "groups": 2}],
            "stack": [_stack("attention & mamba + mlp")],
        },
    ),
    "gpt_oss": (
        {
            **BASE,
            **HEADS,
            "intermediate_size": 24,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 8,
        },
        {
            **FLAT,
            "moe": {**EXPERTS, "ffn_hidden": 24, "router_bias": True},
            "bias_mlp": True,
            "parts": [
                {
                    **FLAT,
                    "type": "attention",
                    "name": name,
                    "window": window,
                    "sinks": True,
                    "bias_qkv": True,
                    "bias_out": True,
                }
                for name, window in (("short", 8), ("long", None))
            ],
            "stack": [_stack("short + moe", "long + moe")],
        },
    ),
    "gemma3_text": (
        {
            **BASE,
            **HEADS,
            "num_hidden_layers": 8,
            "intermediate_size": 40,
            "sliding_window": 8,
            "layer_types": (["sliding_attention"] * 5 + ["full_attention"])
            + ["sliding_attention"] * 2,
        },
        {
            **FLAT,
            "layers": 8,
            "ffn_hidden": 40,
            "qk_norm": "per_head",
            "tied_embeddings": True,
            "norms_per_block": 2,
            "parts": [
                {**FLAT, "type": "attention", "name": "short", "window": 8, "qk_norm": "per_head"}
            ],
            "stack": [_stack(*["short + mlp"] * 5, "attention + mlp")],
        },
    ),
    "llama4_text": (
        {
            **BASE,
            **HEADS,
            "intermediate_size": 24,
            "intermediate_size_mlp": 40,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 2,
            "attention_chunk_size": 8,
        },
        {
            **FLAT,
            "ffn_hidden": 40,
            "moe": {
                "experts": 4,
                "experts_per_token": 1,
                "ffn_hidden": 24,
                "shared_ffn_hidden": 24,
            },
            "parts": [{**FLAT, "type": "attention", "name": "local", "chunk": 8}],
            "stack": [_stack("local + mlp", "local + moe", "local + mlp", "attention + moe")],
        },
    ),
    "jamba": (
        {
            **BASE,
            **HEADS,
            "intermediate_size": 40,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "attn_layer_period": 4,
            "attn_layer_offset": 3,
            "mamba_d_state": 4,
            "mamba_dt_rank": 3,
        },
        {
            **FLAT,
            "ffn_hidden": 40,
            "moe": {**EXPERTS, "ffn_hidden": 40},
            "parts": [
                {
                    "type": "mamba",
                    "name": "mamba",
                    "inner": 64,
                    "state": 4,
                    "dt_rank": 3,
                    "norms": True,
                }
            ],
            "stack": [_stack("mamba + mlp", "mamba + moe", "mamba + mlp", "attention + moe")],
        },
    ),
    "mamba": (
        {**BASE, "state_size": 4, "time_step_rank": 3, "tie_word_embeddings": True},
        {
            "tied_embeddings": True,
            "parts": [{"type": "mamba", "name": "mamba", "inner": 64, "state": 4, "dt_rank": 3}],
            "stack": [_stack("mamba")],
        },
    ),
    "mamba2": (
        {**BASE, "num_heads": 8, "head_dim": 8, "state_size": 16, "n_groups": 2},
        {"parts": [{**MAMBA2, "groups": 2}], "stack": [_stack("mamba")]},
    ),
    "rwkv": (
        {**BASE, "attention_hidden_size": 32, "intermediate_size": 40},
        {
            "norm": "layernorm",
            "norm_bias": True,
            "embedding_norm": True,
            "parts": [
                {"type": "rwkv", "name": "time", "inner": 32},
                {"type": "channel_mix", "name": "channel", "ffn_hidden": 40},
            ],
            "stack": [_stack("time + channel")],
        },
    ),
    "minimax": (
        {
            **BASE,
            **HEADS,
            "intermediate_size": 24,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        },
        {
            **FLAT,
            "moe": {**EXPERTS, "ffn_hidden": 24},
            "parts": [{"type": "lightning", "name": "linear", "heads": 4, "head_dim": 8}],
            "stack": [_stack(*["linear + moe"] * 3, "attention + moe")],
        },
    ),
    "lfm2": (
        {
            **BASE,
            **HEADS,
            "intermediate_size": 40,
            "block_auto_adjust_ff_dim": False,
            "layer_types": ["conv", "conv", "full_attention", "conv"],
        },
        {
            **FLAT,
            "ffn_hidden": 40,
            "qk_norm": "per_head",
            "tied_embeddings": True,
            "parts": [{"type": "short_conv", "name": "conv"}],
            "stack": [_stack("conv + mlp", "conv + mlp", "attention + mlp", "conv + mlp")],
        },
    ),
    "granitemoehybrid": (
        {
            **BASE,
            **HEADS,
            "intermediate_size": 24,
            "shared_intermediate_size": 20,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "layer_types": ["mamba", "mamba", "mamba", "attention"],
            "mamba_n_heads": 8,
            "mamba_d_head": 8,
            "mamba_d_state": 16,
        },
        {
            **FLAT,
            "moe": {**EXPERTS, "ffn_hidden": 24, "shared_ffn_hidden": 20},
            "parts": [MAMBA2],
            "stack": [_stack(*["mamba + moe"] * 3, "attention + moe")],
        },
    ),
    "recurrent_gemma": (
        {
            **BASE,
            **HEADS,
            "intermediate_size": 80,
            "lru_width": 32,
            "block_types": ["recurrent", "recurrent", "attention"],
            "attention_window_size": 8,
        },
        {
            **FLAT,
            "ffn_hidden": 40,
            "bias_mlp": True,
            "bias_attention_out": True,
            "tied_embeddings": True,
            "parts": [{"type": "rg_lru", "name": "lru", "inner": 32, "blocks": 4}],
            "stack": [_stack("lru + mlp", "lru + mlp", "attention + mlp")],
        },
    ),
    "kimi_linear": (
        {
            **BASE,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "intermediate_size": 40,
            "kv_lora_rank": 10,
            "qk_nope_head_dim": 6,
            "qk_rope_head_dim": 4,
            "v_head_dim": 5,
            "moe_intermediate_size": 24,
            "num_experts": 4,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "linear_num_heads": 4,
            "linear_head_dim": 8,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        },
        {
            "heads": 4,
            "ffn_hidden": 40,
            "latent": {**LATENT, "query_rank": None},
            "moe": {**EXPERTS, "ffn_hidden": 24, "shared_ffn_hidden": 24},
            "parts": [{"type": "kimi_delta", "name": "kda", "heads": 4, "head_dim": 8}],
            "stack": [
                _stack("kda + mlp", times=1),
                _stack("kda + moe", "kda + moe", "latent + moe"),
            ],
        },
    ),
    "gemma2": (
        {**BASE, **HEADS, "intermediate_size": 40},
        {
            **FLAT,
            "ffn_hidden": 40,
            "norms_per_layer": 4,
            "tied_embeddings": True,
            "attention_window": 8,
            "window_every": 2,
        },
    ),
    "cohere": (
        {**BASE, **HEADS, "intermediate_size": 40},
        {
            **FLAT,
            "ffn_hidden": 40,
            "norm": "layernorm",
            "tied_embeddings": True,
            "stack": [_stack("attention & mlp")],
        },
    ),
    "deepseek_v4": (
        {
            **BASE,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "q_lora_rank": 12,
            "moe_intermediate_size": 24,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "num_hash_layers": 1,
            "compress_ratios": [0, 128, 4, 4],
            "sliding_window": 8,
            "o_groups": 2,
            "o_lora_rank": 10,
            "index_n_heads": 3,
            "index_head_dim": 8,
            "index_topk": 16,
        },
        {
            "moe": {**EXPERTS, "ffn_hidden": 24, "shared_ffn_hidden": 24},
            "parts": [
                {**COMPRESSED, "name": "window"},
                {**COMPRESSED, "name": "all", "rate": 128},
                {
                    **COMPRESSED,
                    "name": "some",
                    "rate": 4,
                    "index": {"heads": 3, "head_dim": 8, "top_k": 16},
                },
                {"type": "hyper", "name": "lanes", "lanes": 4},
                {"type": "hyper", "name": "one", "lanes": 4, "weights": "head"},
            ],
            "stack": [
                _stack(*(f"{n} & lanes + moe & lanes" for n in ("window", "all", "some")), times=1),
                _stack("some & lanes + moe & lanes & one"),
            ],
        },
    ),
    "xlstm": (
        {**BASE, "num_heads": 2, "ffn_proj_factor": 1.3, "ffn_round_up_to_multiple_of": 8},
        {
            "ffn_hidden": 48,
            "parts": [
                {"type": "mlstm", "name": "mlstm", "heads": 2, "key_dim": 8, "value_dim": 16}
            ],
            "stack": [_stack("mlstm + mlp")],
        },
    ),
}


def keys_of(model_type: str) -> dict[str, Any]:
    return {"name": model_type, "layers": 4, "hidden": H, "vocab": VOCAB, **MODELS[model_type][1]}


def model_of(model_type: str) -> ModelSpec:
    return ModelSpec.model_validate(keys_of(model_type))
