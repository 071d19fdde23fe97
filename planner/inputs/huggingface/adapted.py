"""Types whose traits follow from several keys: one function each, named in the table of types."""

from __future__ import annotations

import functools
from dataclasses import replace

from planner.inputs.huggingface import mixers as m
from planner.inputs.huggingface.family import Family, Layer
from planner.inputs.huggingface.kinds import FULL
from planner.inputs.huggingface.layers import Part
from planner.inputs.huggingface.source import ACTIVATIONS, Source


def opt(s: Source, f: Family) -> Family:
    """A model with norms after its blocks has no further norm at its end."""
    narrow = "embeddings narrower than the hidden width are not expressed"
    s.doc.only("word_embed_proj_dim", s.hidden, narrow)
    return replace(f, final_norm=s.flag("do_layer_norm_before"))


def falcon(s: Source, f: Family) -> Family:
    """Heads of keys and values, norms and positions by the release."""
    new, given = s.flag("new_decoder_architecture"), s.maybe("num_kv_heads")
    used = (given or s.heads) if new else (1 if s.flag("multi_query") else s.heads)
    if given is not None and given != used:
        several = str(s.flag("multi_query")).lower()
        s.note(f"num_kv_heads {given} is not used: multi_query {several} means {used}")
    elif new and given is None:
        s.note(f"num_kv_heads not given: {used}, as num_attention_heads")
    norms = s.doc.optional_count("num_ln_in_parallel_attn", maximum=2) or (2 if new else 1)
    activation = s.doc.word("activation", ACTIVATIONS, "gelu")
    return replace(
        f,
        mixers={FULL: functools.partial(m.attention, kv_heads=used)},
        mlp=functools.partial(m.mlp, activation=activation),
        parallel_norms=norms,
        positions="alibi" if s.flag("alibi") else "rotary",
    )


# of attn_config: kernels and scales, and keys of a whole model as transformers 4 wrote them
_MPT_IGNORED = (
    *("attn_impl", "clip_qkv", "softmax_scale", "alibi_bias_max", "attn_uses_sequence_id"),
    *("rope_theta", "rope_impl", "rope_dail_config", "rope_hf_config", "model_type"),
    *("is_encoder_decoder", "add_cross_attention", "tie_word_embeddings", "pruned_heads"),
    "architectures",
)
_MPT_ONLY = {
    "attn_type": "multihead_attention",
    "prefix_lm": False,
    "qk_ln": False,
    "qk_gn": False,
    "sliding_window_size": -1,
}
_MPT_NORMS = {
    f"{cast}{norm}": norm for cast in ("", "low_precision_") for norm in ("layernorm", "rmsnorm")
}


def mpt(s: Source, f: Family) -> Family:
    """Positions, norms and biases as LLM Foundry states them."""
    attention, mlp = s.doc.part("attn_config"), s.doc.part("ffn_config")
    attention.ignore(*_MPT_IGNORED)
    for key, value in _MPT_ONLY.items():
        attention.only(key, value, "another is not expressed for mpt")
    mlp.only("ffn_type", "mptmlp", "gated MLPs of MPT are not expressed")
    alibi, rotary = attention.flag("alibi", True), attention.flag("rope", False)
    learned = s.flag("learned_pos_emb")
    norm = s.doc.word("norm_type", _MPT_NORMS, "low_precision_layernorm")
    bias, width = not s.flag("no_bias"), s.hidden * s.doc.count("expansion_ratio")
    return replace(
        f,
        mlp=functools.partial(m.mlp, ffn_hidden=width, activation="gelu"),
        norm="rmsnorm" if norm == "rmsnorm" else "layernorm",
        norm_bias=bias and norm == "layernorm",
        positions="alibi" if alibi else "rotary" if rotary else "learned" if learned else "none",
        bias_qkv=bias,
        bias_out=bias,
        bias_mlp=bias,
        dropout=bool(attention.rate("attn_pdrop")),
    )


def deepseek_v2(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Experts, whose groups limit a token where the method says so."""
    method, known = s.doc.get("topk_method"), ("greedy", "group_limited_greedy")
    if method not in (None, *known):
        raise s.error("topk_method", f"not understood; known: {', '.join(known)}")
    (experts,) = m.moe(s, f, layer)
    return [experts if method == known[1] else {**experts, "group_limit": None}]


def bloom_mlp(s: Source, f: Family, layer: Layer) -> list[Part]:
    return m.mlp(s, f, layer, ffn_hidden=4 * s.hidden, activation="gelu")
