"""The table of model types: the composition of each, as deviations from a Llama-like decoder.

Keys and defaults of a type come from its class in transformers (planner/data/hf_defaults.json);
only behaviour of the class in code is declared here. A trait may be a key of the config.json
("use_bias"), "!key" for its opposite.
"""

from __future__ import annotations

from planner.inputs.huggingface import adapted, odd, seq2seq
from planner.inputs.huggingface import kinds as k
from planner.inputs.huggingface.experts import EXPERTS
from planner.inputs.huggingface.family import Family
from planner.inputs.huggingface.hybrids import HYBRIDS
from planner.inputs.huggingface.kinds import FULL, SLIDING
from planner.inputs.huggingface.traits import (
    DEEPSEEK,
    GEMMA,
    GPT_KEYS,
    NO_BIAS,
    PLAIN,
    QKV,
    SANDWICH,
    llama,
    mixers,
)

FAMILIES: dict[str, Family] = {
    # those that most others vary
    "llama": llama(),
    "mistral": llama(**NO_BIAS, kinds=k.windowed_if_stated),
    "mixtral": llama(**NO_BIAS, kinds=k.windowed_if_stated, sparse=k.all_sparse),
    "qwen2": llama(**NO_BIAS | {"bias_qkv": True}, kinds=k.late_windows),
    "qwen2_moe": llama(
        **NO_BIAS | {"bias_qkv": "qkv_bias"}, kinds=k.late_windows, sparse=k.qwen, shared_gate=True
    ),
    "qwen3": llama(bias_mlp=False, qk_norm="per_head", kinds=k.late_windows),
    "qwen3_moe": llama(
        bias_mlp=False,
        qk_norm="per_head",
        sparse=k.qwen,
        always={
            "use_sliding_window": False,
            "shared_expert_intermediate_size": 0,
            "qkv_bias": False,
            "use_qk_norm": True,
        },
    ),
    "gemma": llama(bias_mlp=False),
    "gemma2": llama(**GEMMA, kinds=k.every(2)),
    "phi3": llama(
        **NO_BIAS,
        kinds=k.windowed_if_stated,
        joint=("qkv", "gate"),
        always={"attention_bias": False, "mlp_bias": False, "lm_head_bias": False},
    ),
    "deepseek_v2": llama(**DEEPSEEK | {"always": {}}, moe=adapted.deepseek_v2),
    "deepseek_v3": llama(**DEEPSEEK),
    "kimi_k2": llama(**DEEPSEEK, like="deepseek_v3"),  # its own code is DeepSeek-V3's
    "opt": llama(
        **PLAIN | dict.fromkeys(("bias_qkv", "bias_out", "bias_mlp"), "enable_bias"),
        positions="learned",
        rows=2,  # kept for padding
        adapt=adapted.opt,
        always={
            "layer_norm_elementwise_affine": True,
            "layerdrop": 0,
            "_remove_final_layer_norm": False,
        },
    ),
    "bloom": llama(
        **PLAIN,
        **QKV,
        positions="alibi",
        embedding_norm=True,
        mlp=adapted.bloom_mlp,
        spellings={"n_embed": "hidden_size"},
    ),
    "falcon": llama(
        **PLAIN | dict.fromkeys(("bias_qkv", "bias_out", "bias_mlp"), "bias"),
        **QKV,
        parallel="parallel_attn",
        adapt=adapted.falcon,
        spellings={**GPT_KEYS, "n_head_kv": "num_kv_heads"},
    ),
    "mpt": llama(**PLAIN, **QKV, adapt=adapted.mpt, always={"residual_modification": None}),
    # encoders with decoders
    "t5": llama(whole=seq2seq.t5),
    "mt5": llama(whole=seq2seq.t5),
    "umt5": llama(whole=seq2seq.umt5),
    "bart": llama(whole=seq2seq.bart),
    "mbart": llama(whole=seq2seq.mbart),
    # Llama and what differs from it by a trait
    "apertus": llama(
        gated=False,
        qk_norm="per_head",
        bias_mlp=False,
        activations={"xielu": "silu"},
        beside_mlp=odd.xielu,
    ),
    "arcee": llama(gated=False),
    "bitnet": llama(bias_mlp=False, beside_mlp=odd.sub_norms),
    "cwm": llama(kinds=k.first_of(4)),
    "emu3_text_model": llama(),
    "ernie4_5": llama(bias_qkv="use_bias", bias_out="use_bias", bias_mlp="use_bias"),
    "exaone4": llama(kinds=k.exaone, qk_norm="per_head"),
    "gemma3_text": llama(
        **GEMMA, kinds=k.every("sliding_window_pattern", default=6), qk_norm="per_head"
    ),
    "glm": llama(joint=("gate",), bias_out=False, bias_mlp=False),
    "glm4": llama(joint=("gate",), bias_out=False, bias_mlp=False, **SANDWICH),
    "granite": llama(),
    "granite_swa": llama(kinds=k.first_of(4), sinks=True),
    "helium": llama(mixers={FULL: odd.helium_attention}, bias_out=False),
    "hunyuan_v1_dense": llama(qk_norm="per_head", bias_mlp=False),
    "hyperclovax": llama(beside_mlp=odd.post_norms),
    "internlm3": llama(),
    "iquestcoder": llama(),
    "jais2": llama(gated=False, norm="layernorm", norm_bias=True),
    "ministral": llama(**NO_BIAS, kinds=k.windowed_if_stated),
    "ministral3": llama(**NO_BIAS, kinds=k.windowed_if_stated),
    "nanochat": llama(gated=False, norms=0, final_norm=False, bias_mlp=False),
    "olmo": llama(norm="layernorm", norms=0, final_norm=False, bias_mlp=False),
    "olmo2": llama(qk_norm="full", bias_mlp=False),
    "olmo3": llama(kinds=k.every(4), qk_norm="full", bias_mlp=False),
    "phi4_multimodal": llama(**NO_BIAS, kinds=k.windowed_if_stated),
    "seed_oss": llama(bias_out="attention_out_bias"),
    "smollm3": llama(kinds=k.unrotated),
    "stablelm": llama(
        norm="layernorm",
        norm_bias=True,
        bias_qkv="use_qkv_bias",
        bias_out=False,
        bias_mlp=False,
        parallel="use_parallel_residual",
        beside_mixer=odd.stablelm_qk_norms,
    ),
    "starcoder2": llama(
        **{**PLAIN, "bias_qkv": "use_bias", "bias_out": "use_bias", "bias_mlp": "use_bias"},
        kinds=k.windowed_if_stated,
    ),
    "vaultgemma": llama(kinds=k.every(2), bias_mlp=False),
    "cohere": llama(
        norm="layernorm", parallel=True, bias_mlp=False, beside_mixer=odd.cohere_qk_norms
    ),
    "cohere2": llama(
        norm="layernorm",
        parallel=True,
        bias_mlp=False,
        kinds=k.every("sliding_window_pattern"),
        always={
            "use_parallel_block": True,
            "use_gated_activation": True,
            "use_qk_norm": False,
            "use_embedding_sharing": True,
            "use_parallel_embedding": False,
        },
    ),
    "cohere_compass_text": llama(norm="layernorm", parallel=True, bias_mlp=False),
    "modernbert-decoder": llama(
        norm="layernorm",
        norm_bias="norm_bias",
        kinds=odd.modernbert_kinds,
        mixers=mixers(**{SLIDING: odd.modernbert_window}),
        bias_head="decoder_bias",
        beside_mlp=odd.modernbert_head,
    ),
    # the GPT line
    "gpt2": llama(**QKV, **PLAIN, positions="learned"),
    "gpt-sw3": llama(**PLAIN, positions="learned"),
    "gpt_bigcode": llama(
        **QKV, **PLAIN, positions="learned", mixers=mixers(**{FULL: odd.multi_query})
    ),
    "gpt_neo": llama(**{**PLAIN, "bias_qkv": False}, positions="learned", kinds=k.gpt_neo),
    "gpt_neox_japanese": llama(
        **QKV,
        gated=False,
        norm="layernorm",
        norm_bias=True,
        **NO_BIAS,
        mlp=odd.japanese_mlp,
        beside_mlp=odd.japanese_bias,
    ),
    "gptj": llama(
        gated=False,
        norm="layernorm",
        norm_bias=True,
        bias_qkv=False,
        bias_out=False,
        bias_mlp=True,
        bias_head=True,
        parallel=True,
    ),
    "codegen": llama(
        **QKV,
        gated=False,
        norm="layernorm",
        norm_bias=True,
        bias_qkv=False,
        bias_out=False,
        bias_mlp=True,
        bias_head=True,
        parallel=True,
    ),
    "gpt_neox": llama(
        **QKV,
        **{**PLAIN, "bias_qkv": "attention_bias", "bias_out": "attention_bias"},
        parallel="use_parallel_residual",
        parallel_norms=2,
    ),
    "nemotron": llama(gated=False, norm="layernorm", norm_bias=True),
    "phi": llama(
        **PLAIN, parallel=True, bias_head=True, qk_norm="per_head", qk_norm_if="qk_layernorm"
    ),
    "openai-gpt": llama(
        **QKV, **PLAIN, positions="learned", final_norm=False, always={"n_special": 0}
    ),
    "biogpt": llama(**PLAIN, positions="learned", rows=2),
    "xglm": llama(**PLAIN, positions="none"),
    "ctrl": llama(**PLAIN, positions="none", bias_head=True),
    "persimmon": llama(**QKV, **PLAIN, qk_norm="per_head", qk_norm_if="qk_layernorm"),
    # language models of models of several parts
    "qwen2_vl_text": llama(bias_qkv=True, bias_out=False, bias_mlp=False, kinds=k.late_windows),
    "qwen2_5_vl_text": llama(bias_qkv=True, bias_out=False, bias_mlp=False, kinds=k.late_windows),
    "qwen3_vl_text": llama(qk_norm="per_head", bias_mlp=False),
    "qwen3_vl_moe_text": llama(qk_norm="per_head", bias_mlp=False, sparse=k.qwen),
    **EXPERTS,
    **HYBRIDS,
}
