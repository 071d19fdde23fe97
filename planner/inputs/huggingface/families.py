"""The table of model types: the composition of each, as deviations from a Llama-like decoder.

Keys and defaults of a type come from its class in transformers (planner/data/hf_defaults.json);
only behaviour of the class in code is declared here. A trait may be a key of the config.json
("use_bias"), "!key" for its opposite.

Long: one table, a few lines for each of over a hundred types.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.inputs.huggingface import adapted, compressed, gemma, odd, seq2seq
from planner.inputs.huggingface import kinds as k
from planner.inputs.huggingface import mixers as m
from planner.inputs.huggingface.family import Family, Hook
from planner.inputs.huggingface.kinds import FULL, LINEAR, SLIDING


def _mixers(**mixers: Hook) -> dict[str, Hook]:
    return {**m.LLAMA.mixers, **mixers}


def _llama(**traits: Any) -> Family:
    return replace(m.LLAMA, **traits)


_NO_BIAS: dict[str, Any] = {"bias_qkv": False, "bias_out": False, "bias_mlp": False}
_PLAIN: dict[str, Any] = {
    "gated": False,
    "norm": "layernorm",
    "norm_bias": True,
    "bias_qkv": True,
    "bias_out": True,
    "bias_mlp": True,
}
_SANDWICH: dict[str, Any] = {"norms": 2}
_LATENT: dict[str, Any] = {"mixers": _mixers(**{FULL: m.latent}), "bias_mlp": False}
_DSA: dict[str, Any] = {
    "mixers": _mixers(**{FULL: m.latent, "indexed_attention": m.sparse_latent}),
    "kinds": k.same("indexed_attention"),
    "sparse": k.dense_first(default=3, freq="moe_layer_freq"),
}
_DELTA: dict[str, Any] = {
    "kinds": k.every("full_attention_interval", LINEAR),
    "mixers": _mixers(**{LINEAR: m.gated_delta}),
    "qk_norm": "per_head",
    "gate": "per_element",
    "shared_gate": True,
}
_GEMMA: dict[str, Any] = {"bias_mlp": False, **_SANDWICH}
_MAMBA: dict[str, Any] = {
    "kinds": k.same(LINEAR),
    "has_mlp": False,
    "positions": "none",
    "always": {"rms_norm": True, "ssm_cfg": {}},
}

_DEEPSEEK: dict[str, Any] = {
    **_LATENT,
    "sparse": k.dense_first(freq="moe_layer_freq"),
    "always": {"topk_method": "noaux_tc"},
}
_GPT_KEYS = {
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_embed": "hidden_size",
}
_QKV: dict[str, Any] = {"joint": ("qkv",)}

FAMILIES: dict[str, Family] = {
    # those that most others vary
    "llama": _llama(),
    "mistral": _llama(**_NO_BIAS, kinds=k.windowed_if_stated),
    "mixtral": _llama(**_NO_BIAS, kinds=k.windowed_if_stated, sparse=k.all_sparse),
    "qwen2": _llama(**_NO_BIAS | {"bias_qkv": True}, kinds=k.late_windows),
    "qwen2_moe": _llama(
        **_NO_BIAS | {"bias_qkv": "qkv_bias"}, kinds=k.late_windows, sparse=k.qwen, shared_gate=True
    ),
    "qwen3": _llama(bias_mlp=False, qk_norm="per_head", kinds=k.late_windows),
    "qwen3_moe": _llama(
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
    "gemma": _llama(bias_mlp=False),
    "gemma2": _llama(**_GEMMA, kinds=k.every(2)),
    "phi3": _llama(
        **_NO_BIAS,
        kinds=k.windowed_if_stated,
        joint=("qkv", "gate"),
        always={"attention_bias": False, "mlp_bias": False, "lm_head_bias": False},
    ),
    "deepseek_v2": _llama(**_DEEPSEEK | {"always": {}}, moe=adapted.deepseek_v2),
    "deepseek_v3": _llama(**_DEEPSEEK),
    "kimi_k2": _llama(**_DEEPSEEK, like="deepseek_v3"),  # its own code is DeepSeek-V3's
    "opt": _llama(
        **_PLAIN | dict.fromkeys(("bias_qkv", "bias_out", "bias_mlp"), "enable_bias"),
        positions="learned",
        rows=2,  # kept for padding
        adapt=adapted.opt,
        always={
            "layer_norm_elementwise_affine": True,
            "layerdrop": 0,
            "_remove_final_layer_norm": False,
        },
    ),
    "bloom": _llama(
        **_PLAIN,
        **_QKV,
        positions="alibi",
        embedding_norm=True,
        mlp=adapted.bloom_mlp,
        spellings={"n_embed": "hidden_size"},
    ),
    "falcon": _llama(
        **_PLAIN | dict.fromkeys(("bias_qkv", "bias_out", "bias_mlp"), "bias"),
        **_QKV,
        parallel="parallel_attn",
        adapt=adapted.falcon,
        spellings={**_GPT_KEYS, "n_head_kv": "num_kv_heads"},
    ),
    "mpt": _llama(**_PLAIN, **_QKV, adapt=adapted.mpt, always={"residual_modification": None}),
    # encoders with decoders
    "t5": _llama(whole=seq2seq.t5),
    "mt5": _llama(whole=seq2seq.t5),
    "umt5": _llama(whole=seq2seq.umt5),
    "bart": _llama(whole=seq2seq.bart),
    "mbart": _llama(whole=seq2seq.mbart),
    # Llama and what differs from it by a trait
    "apertus": _llama(
        gated=False,
        qk_norm="per_head",
        bias_mlp=False,
        activations={"xielu": "silu"},
        beside_mlp=odd.xielu,
    ),
    "arcee": _llama(gated=False),
    "bitnet": _llama(bias_mlp=False, beside_mlp=odd.sub_norms),
    "cwm": _llama(kinds=k.first_of(4)),
    "diffllama": _llama(beside_mixer=odd.diff_lambdas, bias_mlp=False),
    "emu3_text_model": _llama(),
    "ernie4_5": _llama(bias_qkv="use_bias", bias_out="use_bias", bias_mlp="use_bias"),
    "exaone4": _llama(kinds=k.exaone, qk_norm="per_head"),
    "gemma3_text": _llama(
        **_GEMMA, kinds=k.every("sliding_window_pattern", default=6), qk_norm="per_head"
    ),
    "glm": _llama(joint=("gate",), bias_out=False, bias_mlp=False),
    "glm4": _llama(joint=("gate",), bias_out=False, bias_mlp=False, **_SANDWICH),
    "granite": _llama(),
    "granite_swa": _llama(kinds=k.first_of(4), sinks=True),
    "helium": _llama(mixers={FULL: odd.helium_attention}, bias_out=False),
    "hunyuan_v1_dense": _llama(qk_norm="per_head", bias_mlp=False),
    "hyperclovax": _llama(beside_mlp=odd.post_norms),
    "internlm3": _llama(),
    "iquestcoder": _llama(),
    "jais2": _llama(gated=False, norm="layernorm", norm_bias=True),
    "ministral": _llama(**_NO_BIAS, kinds=k.windowed_if_stated),
    "ministral3": _llama(**_NO_BIAS, kinds=k.windowed_if_stated),
    "nanochat": _llama(gated=False, norms=0, final_norm=False, bias_mlp=False),
    "olmo": _llama(norm="layernorm", norms=0, final_norm=False, bias_mlp=False),
    "olmo2": _llama(qk_norm="full", bias_mlp=False),
    "olmo3": _llama(kinds=k.every(4), qk_norm="full", bias_mlp=False),
    "phi4_multimodal": _llama(**_NO_BIAS, kinds=k.windowed_if_stated),
    "seed_oss": _llama(bias_out="attention_out_bias"),
    "smollm3": _llama(kinds=k.unrotated),
    "stablelm": _llama(
        norm="layernorm",
        norm_bias=True,
        bias_qkv="use_qkv_bias",
        bias_out=False,
        bias_mlp=False,
        parallel="use_parallel_residual",
        beside_mixer=odd.stablelm_qk_norms,
    ),
    "starcoder2": _llama(
        **{**_PLAIN, "bias_qkv": "use_bias", "bias_out": "use_bias", "bias_mlp": "use_bias"},
        kinds=k.windowed_if_stated,
    ),
    "vaultgemma": _llama(kinds=k.every(2), bias_mlp=False),
    "cohere": _llama(
        norm="layernorm", parallel=True, bias_mlp=False, beside_mixer=odd.cohere_qk_norms
    ),
    "cohere2": _llama(
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
    "cohere_compass_text": _llama(norm="layernorm", parallel=True, bias_mlp=False),
    "modernbert-decoder": _llama(
        norm="layernorm",
        norm_bias="norm_bias",
        kinds=odd.modernbert_kinds,
        mixers=_mixers(**{SLIDING: odd.modernbert_window}),
        bias_head="decoder_bias",
        beside_mlp=odd.modernbert_head,
    ),
    # the GPT line
    "gpt2": _llama(**_QKV, **_PLAIN, positions="learned"),
    "gpt-sw3": _llama(**_PLAIN, positions="learned"),
    "gpt_bigcode": _llama(
        **_QKV, **_PLAIN, positions="learned", mixers=_mixers(**{FULL: odd.multi_query})
    ),
    "gpt_neo": _llama(**{**_PLAIN, "bias_qkv": False}, positions="learned", kinds=k.gpt_neo),
    "gpt_neox_japanese": _llama(
        **_QKV,
        gated=False,
        norm="layernorm",
        norm_bias=True,
        **_NO_BIAS,
        mlp=odd.japanese_mlp,
        beside_mlp=odd.japanese_bias,
    ),
    "gptj": _llama(
        gated=False,
        norm="layernorm",
        norm_bias=True,
        bias_qkv=False,
        bias_out=False,
        bias_mlp=True,
        bias_head=True,
        parallel=True,
    ),
    "codegen": _llama(
        **_QKV,
        gated=False,
        norm="layernorm",
        norm_bias=True,
        bias_qkv=False,
        bias_out=False,
        bias_mlp=True,
        bias_head=True,
        parallel=True,
    ),
    "gpt_neox": _llama(
        **_QKV,
        **{**_PLAIN, "bias_qkv": "attention_bias", "bias_out": "attention_bias"},
        parallel="use_parallel_residual",
        parallel_norms=2,
    ),
    "nemotron": _llama(gated=False, norm="layernorm", norm_bias=True),
    "phi": _llama(
        **_PLAIN, parallel=True, bias_head=True, qk_norm="per_head", qk_norm_if="qk_layernorm"
    ),
    "openai-gpt": _llama(
        **_QKV, **_PLAIN, positions="learned", final_norm=False, always={"n_special": 0}
    ),
    "biogpt": _llama(**_PLAIN, positions="learned", rows=2),
    "xglm": _llama(**_PLAIN, positions="none"),
    "ctrl": _llama(**_PLAIN, positions="none", bias_head=True),
    "persimmon": _llama(**_QKV, **_PLAIN, qk_norm="per_head", qk_norm_if="qk_layernorm"),
    # mixtures of experts
    "afmoe": _llama(
        **_SANDWICH,
        kinds=k.every("global_attn_every_n_layers"),
        sparse=k.dense_first("num_dense_layers"),
        qk_norm="per_head",
        gate="per_element",
        **_NO_BIAS,
    ),
    "aria_text": _llama(sparse=k.all_sparse),
    "beam": _llama(
        **_SANDWICH,
        kinds=lambda s: k.last_full(k.every(6)(s)),
        sparse=k.dense_first("", 3),
        qk_norm="per_head",
        gate="per_element",
        beside_mixer=odd.gate_bias,
        **_NO_BIAS,
    ),
    "cohere2_moe": _llama(
        norm="layernorm",
        parallel=True,
        kinds=odd.cohere2_moe_kinds,
        sparse=k.dense_first(default=0),
        mlp=odd.cohere2_dense,
        bias_mlp=False,
    ),
    "dots1": _llama(
        kinds=k.late_windows, sparse=k.dense_first(default=0), qk_norm="per_head", bias_mlp=False
    ),
    "ernie4_5_moe": _llama(sparse=k.ernie, **_NO_BIAS),
    "exaone_moe": _llama(
        kinds=k.exaone, sparse=k.dense_first(), qk_norm="per_head", bias_mlp=False
    ),
    "flex_olmo": _llama(sparse=k.all_sparse, qk_norm="full", bias_mlp=False),
    "flint": _llama(
        kinds=k.when(lambda i, n: i in (0, 1, n - 1) or i % 4 == 1),
        sparse=k.flint,
        qk_norm="per_head",
        sinks=True,
        bias_mlp=False,
    ),
    "glm4_moe": _llama(
        uneven_heads=True,
        sparse=k.dense_first(),
        qk_norm="per_head",
        qk_norm_if="use_qk_norm",
        bias_out=False,
        bias_mlp=False,
    ),
    "gpt_oss": _llama(
        kinds=k.every(2),
        sparse=k.all_sparse,
        sinks=True,
        router_bias=True,
        bias_experts=True,
        clamped=True,
    ),
    "granitemoe": _llama(sparse=k.if_experts, bias_mlp=False),
    "granitemoe_swa": _llama(sparse=k.if_experts, kinds=k.first_of(4), sinks=True, bias_mlp=False),
    "granitemoeshared": _llama(sparse=k.if_experts, bias_mlp=False),
    "hunyuan_v1_moe": _llama(
        sparse=k.all_sparse, qk_norm="per_head", moe=odd.one_shared_moe, bias_mlp=False
    ),
    "hy_v3": _llama(sparse=k.dense_first("", 1), qk_norm="per_head", bias_mlp=False),
    "kolibri1": _llama(
        **_SANDWICH, kinds=k.every(5), sparse=k.all_sparse, qk_norm="per_head", bias_mlp=False
    ),
    "laguna": _llama(
        sparse=k.dense_first("", 1),
        qk_norm="per_head",
        gate="per_head",
        gate_if="gating",
        mixers=_mixers(**{FULL: odd.laguna_full, SLIDING: odd.laguna_window}),
        **_NO_BIAS,
    ),
    "lfm2_moe": _llama(
        kinds=k.full,
        mixers=_mixers(conv=m.short_conv),
        sparse=k.dense_first("num_dense_layers", 2),
        qk_norm="per_head",
        **_NO_BIAS,
    ),
    "llama4_text": _llama(
        kinds=k.chunks,
        mixers=_mixers(**{FULL: m.unrotated}),
        sparse=k.llama4,
        moe=odd.one_shared_moe,
        mlp=odd.llama4_mlp,
        bias_mlp=False,
    ),
    "mellum": _llama(sparse=k.dense_first("", 0), qk_norm="per_head", bias_mlp=False),
    "mimo_v2_flash": _llama(
        kinds=k.when(lambda i, n: i == 0 or (i + 1) % 6 == 0),
        mixers=_mixers(**{FULL: odd.mimo_full, SLIDING: odd.mimo_window}),
        sparse=k.dense_first("", 1),
        bias_out=False,
        bias_mlp=False,
    ),
    "minimax_m2": _llama(
        sparse=k.all_sparse, mixers={FULL: odd.m2_attention}, qk_norm="full", **_NO_BIAS
    ),
    "minimax_m3_vl_text": _llama(
        sparse=k.minimax_m3,
        qk_norm="per_head",
        mlp=odd.m3_dense,
        moe=m.moe,
        mixers=_mixers(minimax_m3_sparse=odd.m3_sparse),
        **_NO_BIAS,
    ),
    "olmoe": _llama(sparse=k.all_sparse, qk_norm="full", bias_mlp=False),
    "phimoe": _llama(
        norm="layernorm",
        norm_bias=True,
        sparse=k.all_sparse,
        kinds=k.windowed_if_stated,
        bias_head="lm_head_bias",
        bias_mlp=False,
    ),
    "solar_open": _llama(sparse=k.all_sparse, bias_out=False, bias_mlp=False),
    "doge": _llama(
        qk_norm="per_head",
        beside_mixer=odd.doge_mixer,
        sparse=k.if_flag("is_moe"),
        moe=odd.doge_moe,
    ),
    # latent attention
    "axk1": _llama(
        **_LATENT, sparse=k.dense_first(freq="moe_layer_freq"), beside_mlp=odd.post_norm_of_experts
    ),
    "deepseek_v32": _llama(**{**_DSA, "bias_mlp": False}),
    "deepseek_v4": _llama(
        kinds=compressed.kinds,
        mixers={
            SLIDING: compressed.window,
            compressed.CHOSEN: compressed.chosen,
            compressed.ALL: compressed.window,
        },
        sparse=k.all_sparse,
        beside_mlp=compressed.ends,
        **_NO_BIAS,
    ),
    "glm4_moe_lite": _llama(**_LATENT, sparse=k.dense_first("", 1)),
    "glm_moe_dsa": _llama(
        **{**_DSA, "mixers": _mixers(**{FULL: m.latent, "indexed_attention": odd.glm_sparse})},
        bias_mlp=False,
    ),
    "minicpm3": _llama(**{**_LATENT, "bias_mlp": "mlp_bias"}),
    "youtu": _llama(**_LATENT),
    "longcat_flash": _llama(**_LATENT, sparse=k.all_sparse, blocks=odd.longcat),
    # hybrids
    "bamba": _llama(
        kinds=k.listed_places("attn_layer_indices", FULL, LINEAR),
        mixers=_mixers(**{LINEAR: m.mamba2}),
    ),
    "falcon_h1": _llama(
        kinds=k.same("hybrid"),
        mixers=_mixers(hybrid=odd.falcon_h1),
        mamba_norm_if="mamba_rms_norm",
        bias_out="attention_bias",
    ),
    "granitemoehybrid": _llama(
        kinds=k.same(LINEAR),
        mixers=_mixers(**{FULL: odd.granite_attention, LINEAR: m.mamba2}),
        sparse=k.if_experts,
        mlp=odd.granite_shared,
        bias_mlp=False,
    ),
    "jamba": _llama(
        kinds=k.jamba,
        mixers=_mixers(**{LINEAR: m.mamba}),
        sparse=k.jamba_experts,
        mamba_norms=True,
        **_NO_BIAS,
    ),
    "kimi_linear": _llama(
        kinds=k.kimi,
        mixers=_mixers(**{FULL: m.latent, LINEAR: m.kimi_delta}),
        sparse=k.dense_first(),
        bias_mlp=False,
        tied=False,
    ),
    "bailing_hybrid": _llama(
        tied=False,
        kinds=k.every("layer_group_size", LINEAR),
        mixers=_mixers(**{FULL: odd.bailing_latent, LINEAR: odd.bailing_delta}),
        sparse=k.dense_first(),
        bias_mlp=False,
    ),
    "lfm2": _llama(
        kinds=k.lfm2,
        always={"block_use_swiglu": True, "use_pos_enc": True, "conv_use_xavier_init": True},
        mixers=_mixers(conv=m.short_conv),
        qk_norm="per_head",
        mlp=odd.lfm2_mlp,
        **_NO_BIAS,
    ),
    "lfm3": _llama(
        kinds=odd.lfm3_kinds,
        mixers=_mixers(conv=m.short_conv),
        qk_norm="per_head",
        gate="per_head",
        gate_if="use_attention_gate",
        beside_mlp=odd.lfm3_norms,
        **_NO_BIAS,
    ),
    "minimax": _llama(
        kinds=k.when(lambda i, n: i % 2 == 0, FULL, LINEAR),
        mixers=_mixers(**{LINEAR: m.lightning}),
        sparse=k.all_sparse,
        **_NO_BIAS,
    ),
    "nemotron_h": _llama(
        gated=False,
        tied=False,
        **_NO_BIAS,
        mixers=_mixers(**{LINEAR: m.mamba2, "mlp": m.mlp, "moe": odd.nemotron_moe}),
        kinds=odd.nemotron_kinds,
        layer_count=odd.nemotron_layers,
        has_mlp=False,
    ),
    "olmo_hybrid": _llama(
        kinds=k.olmo_hybrid,
        mixers=_mixers(**{LINEAR: m.gated_delta}),
        qk_norm="full",
        bias_mlp=False,
    ),
    "qwen3_5_text": _llama(**_DELTA, bias_mlp=False),
    "qwen3_5_moe_text": _llama(**_DELTA, sparse=k.all_sparse, bias_mlp=False),
    "qwen3_next": _llama(**_DELTA, sparse=k.qwen, bias_mlp=False),
    "recurrent_gemma": _llama(
        kinds=k.griffin,
        mixers=_mixers(**{FULL: m.window, "recurrent": m.rg_lru}),
        mlp=odd.half_mlp,
        bias_out=True,
        bias_mlp=True,
    ),
    "mamba": _llama(**_MAMBA, mixers={LINEAR: m.mamba}),
    "falcon_mamba": _llama(**_MAMBA, mixers={LINEAR: m.mamba}),
    "mamba2": _llama(**_MAMBA, mixers={LINEAR: m.mamba2}),
    "rwkv": _llama(
        kinds=k.same(LINEAR),
        mixers={LINEAR: m.rwkv},
        mlp=odd.channel_mix,
        norm="layernorm",
        norm_bias=True,
        embedding_norm=True,
        positions="none",
    ),
    "xlstm": _llama(
        kinds=k.same(LINEAR),
        mixers={LINEAR: m.mlstm},
        mlp=odd.rounded_mlp,
        tied=False,
        positions="none",
        always={"use_bias": False},
        bias_mlp=False,
    ),
    # of parts that few others have
    "gemma3n_text": _llama(
        **_GEMMA,
        kinds=k.every(5),
        mixers=_mixers(**{FULL: gemma.shared_full, SLIDING: gemma.shared_window}),
        mlp=gemma.listed_mlp,
        qk_norm="per_head",
        beside_mixer=gemma.laurel,
        beside_mlp=gemma.alternating,
    ),
    "gemma4_text": _llama(
        **_GEMMA,
        kinds=k.every(6),
        order=k.last_full,
        mixers=_mixers(**{FULL: gemma.wide_full, SLIDING: gemma.shared_window}),
        mlp=gemma.double_mlp,
        qk_norm="per_head",
        beside_mlp=gemma.experts_and_embedding,
    ),
    "gemma4_unified_text": _llama(
        **_GEMMA,
        kinds=k.every(6),
        order=k.last_full,
        mixers=_mixers(**{FULL: gemma.wide_full, SLIDING: gemma.shared_window}),
        mlp=gemma.double_mlp,
        qk_norm="per_head",
    ),
    "dbrx": _llama(
        **_QKV,
        norm="layernorm",
        mixers=_mixers(**{FULL: odd.dbrx_attention}),
        sparse=k.all_sparse,
        moe=odd.dbrx_moe,
        **_NO_BIAS,
    ),
    "mllama_text_model": _llama(
        kinds=k.listed_places("cross_attention_layers", "cross", FULL, tuple(range(3, 39, 5))),
        mixers=_mixers(cross=odd.mllama_cross),
        beside_mlp=odd.mllama_rows,
        **_NO_BIAS,
    ),
    "axk2": _llama(
        **{**_DSA, "sparse": k.dense_first(freq="moe_layer_freq"), "bias_mlp": False},
        beside_mixer=odd.axk2_gates,
        beside_mlp=odd.axk2_norm,
    ),
    "dots3_note_text": _llama(
        kinds=odd.dots3_kinds,
        mixers={
            "indexed_attention": odd.dots3_sparse,
            FULL: odd.dots3_full,
            SLIDING: odd.dots3_window,
        },
        sparse=k.dense_first(freq="moe_layer_freq"),
        bias_mlp=False,
    ),
    "hy_v4": _llama(
        **{
            **_DSA,
            "sparse": k.dense_first("", 1),
            "mixers": _mixers(**{FULL: m.latent, "indexed_attention": odd.hy4_sparse}),
            "bias_mlp": False,
        },
        beside_mlp=odd.hyper_connections,
    ),
    "moshi": _llama(tied=False, mlp=odd.half_mlp, beside_mlp=odd.moshi_row, **_NO_BIAS),
    "cpmant": _llama(tied=False, beside_mlp=odd.cpmant_tables, positions="none", **_NO_BIAS),
    # language models of models of several parts
    "qwen2_vl_text": _llama(bias_qkv=True, bias_out=False, bias_mlp=False, kinds=k.late_windows),
    "qwen2_5_vl_text": _llama(bias_qkv=True, bias_out=False, bias_mlp=False, kinds=k.late_windows),
    "qwen3_vl_text": _llama(qk_norm="per_head", bias_mlp=False),
    "qwen3_vl_moe_text": _llama(qk_norm="per_head", bias_mlp=False, sparse=k.qwen),
}
