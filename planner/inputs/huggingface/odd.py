"""Peculiarities of single types: one small function each, named in the table of types."""

from __future__ import annotations

import re
from typing import Any

from planner.inputs.huggingface import kinds as k
from planner.inputs.huggingface import mixers as m
from planner.inputs.huggingface.document import Document
from planner.inputs.huggingface.family import Family, Layer
from planner.inputs.huggingface.kinds import FULL, LINEAR, SLIDING
from planner.inputs.huggingface.layers import Blocks, Part
from planner.inputs.huggingface.source import MAX_LAYERS, Source


def xielu(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Apertus: two trained scalars of the activation."""
    return m.extra(2)


def sub_norms(s: Source, f: Family, layer: Layer) -> list[Part]:
    """BitNet: norms before the two output projections."""
    return m.extra(s.hidden + s.ffn)


def post_norms(s: Source, f: Family, layer: Layer) -> list[Part]:
    """HyperCLOVA X: norms after both branches, where use_post_norm says so."""
    return m.extra(2 * s.hidden * s.flag("use_post_norm"))


def post_norm_of_experts(s: Source, f: Family, layer: Layer) -> list[Part]:
    """A.X-K1: a norm after the experts."""
    return m.extra(s.hidden * layer.sparse)


def _norms_of_all_heads(s: Source, key: str) -> list[Part]:
    return m.extra((s.heads + s.kv_heads) * s.head_dim * s.flag(key))


def stablelm_qk_norms(s: Source, f: Family, layer: Layer) -> list[Part]:
    return _norms_of_all_heads(s, "qk_layernorm")


def cohere_qk_norms(s: Source, f: Family, layer: Layer) -> list[Part]:
    return _norms_of_all_heads(s, "use_qk_norm")


def gate_bias(s: Source, f: Family, layer: Layer) -> list[Part]:
    return m.extra(s.heads)


def modernbert_kinds(s: Source) -> list[str]:
    step = s.doc.optional_count("global_attn_every_n_layers") or 3
    return k.first_of(step)(s)


def modernbert_window(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Half of the window of the encoder, which looks both ways."""
    both = s.doc.count("local_attention")
    s.doc.ignore("sliding_window")
    return m.attention(s, f, layer, window=both // 2 or None, name="window")


def modernbert_head(s: Source, f: Family, layer: Layer) -> list[Part]:
    """A dense layer and a norm before the logits."""
    if not layer.last:
        return []
    bias = s.flag("classifier_bias")
    return m.projection(s.hidden, s.hidden, bias) + m.extra(s.hidden * (1 + s.flag("norm_bias")))


def multi_query(s: Source, f: Family, layer: Layer) -> list[Part]:
    heads = 1 if s.flag("multi_query") else s.heads
    return m.attention(s, f, layer, kv_heads=heads)


def japanese_mlp(s: Source, f: Family, layer: Layer) -> list[Part]:
    return m.mlp(s, f, layer, ffn_hidden=s.hidden * s.doc.count("intermediate_multiple_size"))


def japanese_bias(s: Source, f: Family, layer: Layer) -> list[Part]:
    """A bias of the attention's output in the last layer only."""
    return m.extra(s.hidden * layer.last)


def cohere2_moe_kinds(s: Source) -> list[str]:
    dense = min(s.doc.optional_count("first_k_dense_replace", minimum=0) or 0, s.layers)
    first = s.doc.count("prefix_dense_sliding_window_pattern")
    step = s.doc.count("sliding_window_pattern")
    prefix = [SLIDING if (i + 1) % first else FULL for i in range(dense)]
    return prefix + [SLIDING if (i + 1) % step else FULL for i in range(s.layers - dense)]


def cohere2_dense(s: Source, f: Family, layer: Layer) -> list[Part]:
    width = s.maybe("prefix_dense_intermediate_size") or s.ffn
    return m.mlp(s, f, layer, ffn_hidden=width)


def one_shared_moe(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Beside the routed experts one shared MLP as wide as one of them: Hunyuan, Llama 4."""
    return m.moe(s, f, layer, shared_ffn_hidden=s.ffn)


def llama4_mlp(s: Source, f: Family, layer: Layer) -> list[Part]:
    return m.mlp(s, f, layer, ffn_hidden=s.doc.count("intermediate_size_mlp"))


def mimo_full(s: Source, f: Family, layer: Layer) -> list[Part]:
    return m.attention(s, f, layer, value_dim=s.doc.count("v_head_dim"))


def mimo_window(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Windowed layers have sinks, and twice the heads of keys and values."""
    values = s.doc.count("v_head_dim")
    return m.window(s, f, layer, value_dim=values, kv_heads=2 * s.kv_heads, sinks=True)


def _laguna_heads(s: Source, layer: Layer) -> int:
    s.doc.only("gating", True, "another gate than one per head is not expressed")
    listed = s.doc.listed("num_attention_heads_per_layer", int, s.layers)
    return s.heads if listed is None else int(listed[layer.place])


def laguna_full(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Heads may be stated layer by layer."""
    return m.attention(s, f, layer, heads=_laguna_heads(s, layer))


def laguna_window(s: Source, f: Family, layer: Layer) -> list[Part]:
    return m.window(s, f, layer, heads=_laguna_heads(s, layer))


def helium_attention(s: Source, f: Family, layer: Layer) -> list[Part]:
    if s.heads * s.head_dim != s.hidden:
        raise s.error("head_dim", f"times heads must be the hidden width {s.hidden} in Helium")
    return m.attention(s, f, layer)


def m2_attention(s: Source, f: Family, layer: Layer) -> list[Part]:
    """MiniMax-M2: the first files state what all of it has."""
    s.doc.only("use_qk_norm", True, "queries and keys without norms are not expressed")
    s.doc.only("qk_norm_type", "per_layer", "another norm of queries and keys is not expressed")
    kinds = s.doc.listed("attn_type_list", int, s.layers)
    if kinds is not None and set(kinds) != {1}:
        raise s.error("attn_type_list", "another attention than 1 is not expressed")
    return m.attention(s, f, layer)


def m3_dense(s: Source, f: Family, layer: Layer) -> list[Part]:
    return m.mlp(s, f, layer, ffn_hidden=s.doc.count("dense_intermediate_size"))


def glm_sparse(s: Source, f: Family, layer: Layer) -> list[Part]:
    """GLM-5: layers that choose the keys themselves, and others that take an earlier choice."""
    kinds = s.doc.listed("indexer_types", str, s.layers)
    pattern = s.doc.get("index_topk_pattern")
    s.doc.ignore("index_topk_freq", "index_skip_topk_offset")
    if kinds is None and pattern is not None:
        if not isinstance(pattern, str) or not re.fullmatch(f"[FS]{{{s.layers}}}", pattern):
            raise s.error("index_topk_pattern", f"must be F or S for each of {s.layers} layers")
        full = pattern[layer.place] == "F"
    elif kinds is None:
        step = max(s.doc.optional_count("index_topk_freq") or 1, 1)
        first = s.doc.optional_count("index_skip_topk_offset", minimum=0)
        offset = 2 if first is None else first
        full = max(layer.place - offset + 1, 0) % step == 0
    else:
        full = kinds[layer.place] == "full"
    part = m.sparse_latent(s, f, layer)
    part[0]["index"]["own"] = full
    return part


def longcat(s: Source, f: Family, layer: Layer) -> Blocks:
    """Two rounds of latent attention and a dense MLP; experts beside the first MLP."""
    latent, mlp = m.latent(s, f, layer), m.mlp(s, f, layer)
    zero = s.doc.optional_count("zero_expert_num", minimum=0) or 0
    if zero and layer.last:
        s.note(
            f"{zero} zero experts compute nothing and have no weights; transformers 5.23 allocates"
            " gate and up of them, which are not counted"
        )
    return [latent, mlp + m.moe(s, f, layer, zero_experts=zero), latent, mlp]


def falcon_h1(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Attention and Mamba-2 read the same input."""
    s.doc.only("mamba_proj_bias", False, "a bias of one projection of Mamba is not expressed")
    s.doc.only("mamba_use_mlp", True, "layers without an MLP are not expressed")
    return m.attention(s, f, layer) + m.mamba2(s, f, layer)


def granite_attention(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Rotary positions where the file asks for them; the hybrids have none."""
    s.doc.only("normalization_function", "rmsnorm", "another norm is not expressed")
    kind = s.value("position_embedding_type")
    if kind not in (None, "rope", "nope"):
        raise s.error("position_embedding_type", "not understood; known: rope, nope, null")
    return m.attention(s, f, layer, rotary=kind == "rope")


def granite_shared(s: Source, f: Family, layer: Layer) -> list[Part]:
    s.doc.only("mlp_bias", False, "an MLP with biases is not expressed")
    return m.mlp(s, f, layer, ffn_hidden=s.doc.count("shared_intermediate_size"))


def bailing_latent(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Latent attention with a gate per head."""
    return m.latent(s, f, layer) + m.projection(s.hidden, s.heads)


def bailing_delta(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Kimi delta attention whose decay and gate are projected at full width."""
    return [
        {
            "type": "kimi_delta",
            "name": "delta",
            "heads": s.maybe("linear_num_heads") or s.heads,
            "head_dim": s.maybe("linear_head_dim") or s.doc.count("head_dim"),
            "conv": s.maybe("linear_conv_kernel_dim") or s.doc.count("short_conv_kernel_size"),
            "low_rank": False,
        }
    ]


def lfm2_mlp(s: Source, f: Family, layer: Layer) -> list[Part]:
    """LFM2: the width is two thirds of the stated value, times a factor, rounded up."""
    width = s.maybe("block_ff_dim") or s.ffn
    if s.flag("block_auto_adjust_ff_dim"):
        stated = s.value("block_ffn_dim_multiplier") is not None
        factor = s.factor("block_ffn_dim_multiplier") if stated else None
        multiple = s.doc.count("block_multiple_of")
        width = int(2 * width / 3)
        if factor is not None:
            width = multiple * -(-int(factor * width) // multiple)
    return m.mlp(s, f, layer, ffn_hidden=width)


def rounded_mlp(s: Source, f: Family, layer: Layer) -> list[Part]:
    """xLSTM: a factor of the hidden width, rounded up."""
    multiple = s.doc.count("ffn_round_up_to_multiple_of")
    width = s.hidden * s.factor("ffn_proj_factor")
    return m.mlp(s, f, layer, ffn_hidden=int((width + multiple - 1) // multiple * multiple))


def lfm3_kinds(s: Source) -> list[str]:
    def kind(i: int) -> str:
        return ("conv" if i == 0 else SLIDING, "conv", FULL, "conv")[i % 4]

    return [kind(i) for i in range(s.layers)]


def lfm3_norms(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Norms after both branches."""
    return m.extra(2 * s.hidden * s.flag("use_sandwich_norm"))


_NEMOTRON = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}


def _nemotron_pattern(doc: Document) -> list[str] | None:
    pattern = doc.get("hybrid_override_pattern")
    if pattern is None:
        return None
    if not isinstance(pattern, str) or not pattern or set(pattern) - set(_NEMOTRON):
        known = ", ".join(_NEMOTRON)
        raise doc.error("hybrid_override_pattern", f"must be a text of {known}")
    return [_NEMOTRON[letter] for letter in pattern]


def nemotron_layers(doc: Document) -> int:
    """The listed layers, whatever num_hidden_layers says."""
    doc.ignore("num_hidden_layers")
    doc.only("attention_head_dim", doc.data.get("head_dim"), "contradicts head_dim")
    listed = doc.listed("layers_block_type", str)
    kinds = listed if listed is not None else _nemotron_pattern(doc)
    count = 4 if kinds is None else len(kinds)
    if not 1 <= count <= MAX_LAYERS:
        raise doc.error("layers_block_type", f"must list 1 to {MAX_LAYERS:,} layers")
    return count


def nemotron_kinds(s: Source) -> list[str]:
    return _nemotron_pattern(s.doc) or [LINEAR, "moe", FULL, "mlp"]


def nemotron_moe(s: Source, f: Family, layer: Layer) -> list[Part]:
    shared = s.doc.optional_count("moe_shared_expert_intermediate_size", minimum=0) or 0
    number = s.doc.optional_count("n_shared_experts", minimum=0) or 0
    latent = s.maybe("moe_latent_size")
    return m.moe(s, f, layer, shared_ffn_hidden=shared * number, latent=latent)


def half_mlp(s: Source, f: Family, layer: Layer) -> list[Part]:
    return m.mlp(s, f, layer, ffn_hidden=s.ffn // 2)


def channel_mix(s: Source, f: Family, layer: Layer) -> list[Part]:
    return [{"type": "channel_mix", "ffn_hidden": s.ffn}]


def doge_mixer(s: Source, f: Family, layer: Layer) -> list[Part]:
    """A mask learned from the values, and two residual weights."""
    steps = m.projection(s.kv_heads * s.head_dim, s.kv_heads, s.flag("attention_bias"))
    return steps + m.extra(s.kv_heads + 2 * s.hidden)


def doge_moe(s: Source, f: Family, layer: Layer) -> list[Part]:
    raise s.error("is_moe", "experts of Doge, chosen by two keys, are not expressed")


def m3_sparse(s: Source, f: Family, layer: Layer) -> list[Part]:
    raise s.error("layer_types", f"{layer.kind} is not expressed: it attends to blocks of keys")


def dbrx_attention(s: Source, f: Family, layer: Layer) -> list[Part]:
    table = s.doc.part("attn_config")
    table.ignore("clip_qkv", "rope_theta", "attn_pdrop", "model_type", "kv_n_heads")
    kv = table.optional_count("kv_n_heads") or 1
    return m.attention(s, f, layer, kv_heads=kv)


def dbrx_moe(s: Source, f: Family, layer: Layer) -> list[Part]:
    table = s.doc.part("ffn_config")
    table.ignore(
        "ffn_act_fn",
        "moe_jitter_eps",
        "moe_loss_weight",
        "moe_normalize_expert_weights",
        "model_type",
        "hidden_size",
        "uniform_expert_assignment",
    )
    return [
        {
            "type": "moe",
            "experts": table.optional_count("moe_num_experts") or 4,
            "experts_per_token": table.optional_count("moe_top_k") or 1,
            "ffn_hidden": table.optional_count("ffn_hidden_size") or 3584,
        }
    ]


_TILES = 4  # of an image at most, Llama 3.2 Vision
_PATCHES = 1601  # of a tile of 560 pixels with patches of 14, and a class token


def mllama_cross(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Layers that attend to an image, with two trained gates."""
    s.note(f"cross attention reads an image of {_TILES * _PATCHES} tokens in every sequence")
    return [
        {
            "type": "cross_attention",
            "name": "cross",
            "heads": s.heads,
            "kv_heads": s.kv_heads,
            "head_dim": s.head_dim,
            "source_tokens": _TILES * _PATCHES,
            "qk_norm": "per_head",
            "gates": 2,
        }
    ]


def mllama_rows(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Eight rows of the embedding that the head has not."""
    return m.extra(8 * s.hidden) if layer.place == 0 else []


def axk2_gates(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Queries and an output gate from both narrow projections; a gated norm before attention."""
    rank = s.doc.count("q_lora_rank")
    heads = s.heads
    queries = heads * (s.doc.count("qk_nope_head_dim") + s.doc.count("qk_rope_head_dim"))
    gates = m.projection(2 * rank, heads * s.doc.count("v_head_dim"))
    return m.projection(rank, queries) + gates + _gated_norm(s)


def _gated_norm(s: Source) -> list[Part]:
    rank = s.doc.count("gated_norm_rank")
    return m.projection(s.hidden, rank) + m.projection(rank, s.hidden)


def axk2_norm(s: Source, f: Family, layer: Layer) -> list[Part]:
    return _gated_norm(s) if layer.sparse else []


def dots3_kinds(s: Source) -> list[str]:
    s.doc.ignore("use_dsa", "use_sliding_window")
    sparse = FULL if s.value("use_dsa") is False else "indexed_attention"
    windowed = s.value("use_sliding_window") is not False
    return [SLIDING if windowed and i > 1 and i % 4 != 1 else sparse for i in range(s.layers)]


def _dots3(s: Source, latent: list[Part]) -> list[Part]:
    """A norm of the rotated key, a gate per head."""
    part = latent[0]
    return latent + m.extra(part["rope_head_dim"]) + m.projection(s.hidden, part["heads"])


def dots3_full(s: Source, f: Family, layer: Layer) -> list[Part]:
    return _dots3(s, m.latent(s, f, layer))


def dots3_sparse(s: Source, f: Family, layer: Layer) -> list[Part]:
    return _dots3(s, m.sparse_latent(s, f, layer))


def dots3_window(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Windowed layers have sizes of their own."""

    row = s.doc.part("per_layer_config").part(f"{layer.place:02d}")

    def size(name: str, default: int) -> int:
        return row.optional_count(name) or s.doc.optional_count(f"swa_{name}") or default

    head, nope = size("head_dim", 256), size("qk_nope_head_dim", 192)
    sizes: dict[str, Any] = {
        "heads": size("num_attention_heads", 64),
        "query_rank": size("q_lora_rank", 1024),
        "kv_rank": size("kv_lora_rank", 1024),
        "nope_head_dim": nope,
        "rope_head_dim": size("qk_rope_head_dim", head - nope),
        "value_head_dim": size("v_head_dim", 128),
    }
    s.doc.ignore("swa_num_key_value_heads")
    row.ignore("num_key_value_heads")
    width = s.window or s.maybe("sliding_window_size") or 512
    return _dots3(s, m.latent(s, f, layer, name="window", window=width, **sizes))


def hy4_sparse(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Latent attention with an index (or the choice of an earlier layer), sinks and a gate."""
    kinds = s.doc.listed("indexer_types", str, s.layers)
    full = layer.place < 1 or (layer.place - 1) % 4 == 0
    part = m.sparse_latent(s, f, layer)
    part[0]["index"]["own"] = full if kinds is None else kinds[layer.place] == "full"
    gate = m.projection(s.hidden, s.heads * int(part[0]["value_head_dim"]))
    s.doc.ignore("learnable_sink_init", "hc_magnitude")
    return part + gate + m.extra(s.heads)


def hyper_connections(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Several streams, weighed before and after each branch, and once more before the head."""
    n = s.doc.count("hc_mult")
    return m.hyper(n, "vectors") * 2 + m.hyper(n, "head") * layer.last


def moshi_row(s: Source, f: Family, layer: Layer) -> list[Part]:
    """One row of the embedding that the head has not."""
    s.note("the depth decoder and the audio codec are not counted")
    return m.extra(s.hidden) if layer.place == 0 else []


def cpmant_tables(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Rows for prompts, segments, and the bias of relative positions, which all layers share."""
    if layer.place:
        return []
    types = s.doc.count("prompt_types")
    segments = s.doc.count("segment_types")
    buckets = s.doc.count("position_bias_num_buckets") + segments * segments
    rows = types * s.doc.count("prompt_length") + segments
    return m.extra(rows * s.hidden + buckets * s.heads)
