"""Gemma 3n and Gemma 4: layers that share keys and values, embeddings per layer, wide full
layers, experts beside the dense MLP."""

from __future__ import annotations

from typing import Any

from planner.inputs.huggingface import mixers as m
from planner.inputs.huggingface.family import Family, Layer
from planner.inputs.huggingface.layers import Part
from planner.inputs.huggingface.source import Source

_WIDE = 512  # width of a head of full layers in Gemma 4, where none is stated


def _owns(s: Source, layer: Layer) -> bool:
    """Whether a layer has keys and values of its own: the last ones, by this count, have not."""
    shared = s.doc.optional_count("num_kv_shared_layers", minimum=0) or 0
    return not shared > 0 or layer.place < s.layers - shared


def _of_layer(s: Source, layer: Layer, key: str) -> int | None:
    """A number that per_layer_config states for one layer."""
    table = s.doc.part("per_layer_config")
    for name in (str(layer.place), f"{layer.place:02d}"):
        row = table.part(name)
        if key in row.data:
            return row.optional_count(key)
    return None


def shared_full(s: Source, f: Family, layer: Layer) -> list[Part]:
    return m.attention(s, f, layer, own_kv=_owns(s, layer))


def shared_window(s: Source, f: Family, layer: Layer) -> list[Part]:
    return m.window(s, f, layer, own_kv=_owns(s, layer))


def wide_full(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Gemma 4: full layers have wide heads, and may take keys for values."""
    alike = s.flag("attention_k_eq_v")
    kv = s.maybe("num_global_key_value_heads") if alike else None
    changes: dict[str, Any] = {
        "head_dim": _of_layer(s, layer, "head_dim") or s.maybe("global_head_dim") or _WIDE,
        "kv_heads": _of_layer(s, layer, "num_key_value_heads") or kv or s.kv_heads,
        "values_are_keys": alike,
    }
    return m.attention(s, f, layer, own_kv=_owns(s, layer), **changes)


def double_mlp(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Layers without keys and values of their own may have an MLP twice as wide."""
    twice = s.flag("use_double_wide_mlp") and not _owns(s, layer)
    return m.mlp(s, f, layer, ffn_hidden=s.ffn * (1 + twice))


def listed_mlp(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Gemma 3n: the width of every layer may be listed."""
    if isinstance(s.doc.get("intermediate_size"), list):
        listed = s.doc.listed("intermediate_size", int, s.layers) or []
        return m.mlp(s, f, layer, ffn_hidden=listed[layer.place])
    return m.mlp(s, f, layer)


def _embedding(s: Source) -> list[Part]:
    width = s.maybe("hidden_size_per_layer_input", minimum=0)
    if not width:
        return []
    rows = s.doc.count("vocab_size_per_layer_input")
    return [{"type": "layer_embedding", "width": width, "vocab": rows}]


def experts_and_embedding(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Experts beside the dense MLP, with three norms, a scale of the router and one per expert."""
    if not s.flag("enable_moe_block"):
        return _embedding(s)
    experts = m.moe(s, f, layer)
    scales = 4 * s.hidden + int(experts[0]["experts"])
    return experts + m.extra(scales) + _embedding(s)


def laurel(s: Source, f: Family, layer: Layer) -> list[Part]:
    """A narrow branch beside attention, with a norm."""
    rank = s.doc.count("laurel_rank")
    down, up = m.projection(s.hidden, rank), m.projection(rank, s.hidden)
    return down + up + m.extra(s.hidden)


def alternating(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Several streams, of which one is computed and the others are predicted and corrected; they
    are made of the embedding, and read together before the head."""
    n = s.doc.count("altup_num_inputs")
    s.doc.ignore("altup_active_idx", "altup_correct_scale", "activation_sparsity_pattern")
    small = m.extra(2 * s.hidden + n * n + n * n * n)
    ends = m.projection(s.hidden, s.hidden) * (n - 1)
    outer = ends * ((layer.place == 0) + layer.last)
    return m.projection(s.hidden, n) + small + outer + _embedding(s)
