"""Model types with experts in every layer or most, and those with latent attention."""

from __future__ import annotations

from planner.inputs.huggingface import compressed, odd
from planner.inputs.huggingface import kinds as k
from planner.inputs.huggingface import mixers as m
from planner.inputs.huggingface.family import Family
from planner.inputs.huggingface.kinds import FULL, SLIDING
from planner.inputs.huggingface.traits import DSA, LATENT, NO_BIAS, SANDWICH, llama, mixers

EXPERTS: dict[str, Family] = {
    # mixtures of experts
    "afmoe": llama(
        **SANDWICH,
        kinds=k.every("global_attn_every_n_layers"),
        sparse=k.dense_first("num_dense_layers"),
        qk_norm="per_head",
        gate="per_element",
        **NO_BIAS,
    ),
    "aria_text": llama(sparse=k.all_sparse),
    "beam": llama(
        **SANDWICH,
        kinds=lambda s: k.last_full(k.every(6)(s)),
        sparse=k.dense_first("", 3),
        qk_norm="per_head",
        gate="per_element",
        beside_mixer=odd.gate_bias,
        **NO_BIAS,
    ),
    "cohere2_moe": llama(
        norm="layernorm",
        parallel=True,
        kinds=odd.cohere2_moe_kinds,
        sparse=k.dense_first(default=0),
        mlp=odd.cohere2_dense,
        bias_mlp=False,
    ),
    "dots1": llama(
        kinds=k.late_windows, sparse=k.dense_first(default=0), qk_norm="per_head", bias_mlp=False
    ),
    "ernie4_5_moe": llama(sparse=k.ernie, **NO_BIAS),
    "exaone_moe": llama(kinds=k.exaone, sparse=k.dense_first(), qk_norm="per_head", bias_mlp=False),
    "flex_olmo": llama(sparse=k.all_sparse, qk_norm="full", bias_mlp=False),
    "flint": llama(
        kinds=k.when(lambda i, n: i in (0, 1, n - 1) or i % 4 == 1),
        sparse=k.flint,
        qk_norm="per_head",
        sinks=True,
        bias_mlp=False,
    ),
    "glm4_moe": llama(
        uneven_heads=True,
        sparse=k.dense_first(),
        qk_norm="per_head",
        qk_norm_if="use_qk_norm",
        bias_out=False,
        bias_mlp=False,
    ),
    "gpt_oss": llama(
        kinds=k.every(2),
        sparse=k.all_sparse,
        sinks=True,
        router_bias=True,
        bias_experts=True,
        clamped=True,
    ),
    "granitemoe": llama(sparse=k.if_experts, bias_mlp=False),
    "granitemoe_swa": llama(sparse=k.if_experts, kinds=k.first_of(4), sinks=True, bias_mlp=False),
    "granitemoeshared": llama(sparse=k.if_experts, bias_mlp=False),
    "hunyuan_v1_moe": llama(
        sparse=k.all_sparse, qk_norm="per_head", moe=odd.one_shared_moe, bias_mlp=False
    ),
    "hy_v3": llama(sparse=k.dense_first("", 1), qk_norm="per_head", bias_mlp=False),
    "kolibri1": llama(
        **SANDWICH, kinds=k.every(5), sparse=k.all_sparse, qk_norm="per_head", bias_mlp=False
    ),
    "laguna": llama(
        sparse=k.dense_first("", 1),
        qk_norm="per_head",
        gate="per_head",
        gate_if="gating",
        mixers=mixers(**{FULL: odd.laguna_full, SLIDING: odd.laguna_window}),
        **NO_BIAS,
    ),
    "lfm2_moe": llama(
        kinds=k.full,
        mixers=mixers(conv=m.short_conv),
        sparse=k.dense_first("num_dense_layers", 2),
        qk_norm="per_head",
        **NO_BIAS,
    ),
    "llama4_text": llama(
        kinds=k.chunks,
        mixers=mixers(**{FULL: m.unrotated}),
        sparse=k.llama4,
        moe=odd.one_shared_moe,
        mlp=odd.llama4_mlp,
        bias_mlp=False,
    ),
    "mellum": llama(sparse=k.dense_first("", 0), qk_norm="per_head", bias_mlp=False),
    "mimo_v2_flash": llama(
        kinds=k.when(lambda i, n: i == 0 or (i + 1) % 6 == 0),
        mixers=mixers(**{FULL: odd.mimo_full, SLIDING: odd.mimo_window}),
        sparse=k.dense_first("", 1),
        bias_out=False,
        bias_mlp=False,
    ),
    "minimax_m2": llama(
        sparse=k.all_sparse, mixers={FULL: odd.m2_attention}, qk_norm="full", **NO_BIAS
    ),
    "minimax_m3_vl_text": llama(
        sparse=k.minimax_m3,
        qk_norm="per_head",
        mlp=odd.m3_dense,
        moe=m.moe,
        mixers=mixers(minimax_m3_sparse=odd.m3_sparse),
        **NO_BIAS,
    ),
    "olmoe": llama(sparse=k.all_sparse, qk_norm="full", bias_mlp=False),
    "phimoe": llama(
        norm="layernorm",
        norm_bias=True,
        sparse=k.all_sparse,
        kinds=k.windowed_if_stated,
        bias_head="lm_head_bias",
        bias_mlp=False,
    ),
    "solar_open": llama(sparse=k.all_sparse, bias_out=False, bias_mlp=False),
    "doge": llama(
        qk_norm="per_head",
        beside_mixer=odd.doge_mixer,
        sparse=k.if_flag("is_moe"),
        moe=odd.doge_moe,
    ),
    # latent attention
    "axk1": llama(
        **LATENT, sparse=k.dense_first(freq="moe_layer_freq"), beside_mlp=odd.post_norm_of_experts
    ),
    "deepseek_v32": llama(**{**DSA, "bias_mlp": False}),
    "deepseek_v4": llama(
        kinds=compressed.kinds,
        mixers={
            SLIDING: compressed.window,
            compressed.CHOSEN: compressed.chosen,
            compressed.ALL: compressed.window,
        },
        sparse=k.all_sparse,
        beside_mlp=compressed.ends,
        **NO_BIAS,
    ),
    "glm4_moe_lite": llama(**LATENT, sparse=k.dense_first("", 1)),
    "glm_moe_dsa": llama(
        **{**DSA, "mixers": mixers(**{FULL: m.latent, "indexed_attention": odd.glm_sparse})},
        bias_mlp=False,
    ),
    "minicpm3": llama(**{**LATENT, "bias_mlp": "mlp_bias"}),
    "youtu": llama(**LATENT),
    "longcat_flash": llama(**LATENT, sparse=k.all_sparse, blocks=odd.longcat),
}
