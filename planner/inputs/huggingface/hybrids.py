"""Model types whose layers differ in kind, and those with parts that few others have."""

from __future__ import annotations

from planner.inputs.huggingface import gemma, odd
from planner.inputs.huggingface import kinds as k
from planner.inputs.huggingface import mixers as m
from planner.inputs.huggingface.family import Family
from planner.inputs.huggingface.kinds import FULL, LINEAR, SLIDING
from planner.inputs.huggingface.traits import DELTA, DSA, GEMMA, MAMBA, NO_BIAS, QKV, llama, mixers

HYBRIDS: dict[str, Family] = {
    # hybrids
    "bamba": llama(
        kinds=k.listed_places("attn_layer_indices", FULL, LINEAR),
        mixers=mixers(**{LINEAR: m.mamba2}),
    ),
    "falcon_h1": llama(
        kinds=k.same("hybrid"),
        mixers=mixers(hybrid=odd.falcon_h1),
        mamba_norm_if="mamba_rms_norm",
        bias_out="attention_bias",
    ),
    "granitemoehybrid": llama(
        kinds=k.same(LINEAR),
        mixers=mixers(**{FULL: odd.granite_attention, LINEAR: m.mamba2}),
        sparse=k.if_experts,
        mlp=odd.granite_shared,
        bias_mlp=False,
    ),
    "jamba": llama(
        kinds=k.jamba,
        mixers=mixers(**{LINEAR: m.mamba}),
        sparse=k.jamba_experts,
        mamba_norms=True,
        **NO_BIAS,
    ),
    "kimi_linear": llama(
        kinds=k.kimi,
        mixers=mixers(**{FULL: m.latent, LINEAR: m.kimi_delta}),
        sparse=k.dense_first(),
        bias_mlp=False,
        tied=False,
    ),
    "bailing_hybrid": llama(
        tied=False,
        kinds=k.every("layer_group_size", LINEAR),
        mixers=mixers(**{FULL: odd.bailing_latent, LINEAR: odd.bailing_delta}),
        sparse=k.dense_first(),
        bias_mlp=False,
    ),
    "lfm2": llama(
        kinds=k.lfm2,
        always={"block_use_swiglu": True, "use_pos_enc": True, "conv_use_xavier_init": True},
        mixers=mixers(conv=m.short_conv),
        qk_norm="per_head",
        mlp=odd.lfm2_mlp,
        **NO_BIAS,
    ),
    "lfm3": llama(
        kinds=odd.lfm3_kinds,
        mixers=mixers(conv=m.short_conv),
        qk_norm="per_head",
        gate="per_head",
        gate_if="use_attention_gate",
        beside_mlp=odd.lfm3_norms,
        **NO_BIAS,
    ),
    "minimax": llama(
        kinds=k.when(lambda i, n: i % 2 == 0, FULL, LINEAR),
        mixers=mixers(**{LINEAR: m.lightning}),
        sparse=k.all_sparse,
        **NO_BIAS,
    ),
    "nemotron_h": llama(
        gated=False,
        tied=False,
        **NO_BIAS,
        mixers=mixers(**{LINEAR: m.mamba2, "mlp": m.mlp, "moe": odd.nemotron_moe}),
        kinds=odd.nemotron_kinds,
        layer_count=odd.nemotron_layers,
        has_mlp=False,
    ),
    "olmo_hybrid": llama(
        kinds=k.olmo_hybrid,
        mixers=mixers(**{LINEAR: m.gated_delta}),
        qk_norm="full",
        bias_mlp=False,
    ),
    "qwen3_5_text": llama(**DELTA, bias_mlp=False),
    "qwen3_5_moe_text": llama(**DELTA, sparse=k.all_sparse, bias_mlp=False),
    "qwen3_next": llama(**DELTA, sparse=k.qwen, bias_mlp=False),
    "recurrent_gemma": llama(
        kinds=k.griffin,
        mixers=mixers(**{FULL: m.window, "recurrent": m.rg_lru}),
        mlp=odd.half_mlp,
        bias_out=True,
        bias_mlp=True,
    ),
    "mamba": llama(**MAMBA, mixers={LINEAR: m.mamba}),
    "falcon_mamba": llama(**MAMBA, mixers={LINEAR: m.mamba}),
    "mamba2": llama(**MAMBA, mixers={LINEAR: m.mamba2}),
    "rwkv": llama(
        kinds=k.same(LINEAR),
        mixers={LINEAR: m.rwkv},
        mlp=odd.channel_mix,
        norm="layernorm",
        norm_bias=True,
        embedding_norm=True,
        positions="none",
    ),
    "xlstm": llama(
        kinds=k.same(LINEAR),
        mixers={LINEAR: m.mlstm},
        mlp=odd.rounded_mlp,
        tied=False,
        positions="none",
        always={"use_bias": False},
        bias_mlp=False,
    ),
    # of parts that few others have
    "gemma3n_text": llama(
        **GEMMA,
        kinds=k.every(5),
        mixers=mixers(**{FULL: gemma.shared_full, SLIDING: gemma.shared_window}),
        mlp=gemma.listed_mlp,
        qk_norm="per_head",
        beside_mixer=gemma.laurel,
        beside_mlp=gemma.alternating,
    ),
    "gemma4_text": llama(
        **GEMMA,
        kinds=k.every(6),
        order=k.last_full,
        mixers=mixers(**{FULL: gemma.wide_full, SLIDING: gemma.shared_window}),
        mlp=gemma.double_mlp,
        qk_norm="per_head",
        beside_mlp=gemma.experts_and_embedding,
    ),
    "gemma4_unified_text": llama(
        **GEMMA,
        kinds=k.every(6),
        order=k.last_full,
        mixers=mixers(**{FULL: gemma.wide_full, SLIDING: gemma.shared_window}),
        mlp=gemma.double_mlp,
        qk_norm="per_head",
    ),
    "dbrx": llama(
        **QKV,
        norm="layernorm",
        mixers=mixers(**{FULL: odd.dbrx_attention}),
        sparse=k.all_sparse,
        moe=odd.dbrx_moe,
        **NO_BIAS,
    ),
    "mllama_text_model": llama(
        kinds=k.listed_places("cross_attention_layers", "cross", FULL, tuple(range(3, 39, 5))),
        mixers=mixers(cross=odd.mllama_cross),
        beside_mlp=odd.mllama_rows,
        **NO_BIAS,
    ),
    "axk2": llama(
        **{**DSA, "sparse": k.dense_first(freq="moe_layer_freq"), "bias_mlp": False},
        beside_mixer=odd.axk2_gates,
        beside_mlp=odd.axk2_norm,
    ),
    "dots3_note_text": llama(
        kinds=odd.dots3_kinds,
        mixers={
            "indexed_attention": odd.dots3_sparse,
            FULL: odd.dots3_full,
            SLIDING: odd.dots3_window,
        },
        sparse=k.dense_first(freq="moe_layer_freq"),
        bias_mlp=False,
    ),
    "hy_v4": llama(
        **{
            **DSA,
            "sparse": k.dense_first("", 1),
            "mixers": mixers(**{FULL: m.latent, "indexed_attention": odd.hy4_sparse}),
            "bias_mlp": False,
        },
        beside_mlp=odd.hyper_connections,
    ),
    "moshi": llama(tied=False, mlp=odd.half_mlp, beside_mlp=odd.moshi_row, **NO_BIAS),
    "cpmant": llama(tied=False, beside_mlp=odd.cpmant_tables, positions="none", **NO_BIAS),
}
