"""DeepSeek-V4: attention to compressed keys, and a residual of several lanes."""

from __future__ import annotations

from planner.inputs.huggingface import mixers as m
from planner.inputs.huggingface.family import Family, Layer
from planner.inputs.huggingface.kinds import SLIDING
from planner.inputs.huggingface.layers import Part
from planner.inputs.huggingface.source import Source

CHOSEN, ALL = "compressed_sparse_attention", "heavily_compressed_attention"
_RATES = {CHOSEN: 4, ALL: 128}  # tokens of an entry, where none are stated
_FIRST = {CHOSEN: "compress_rate_csa", ALL: "compress_rate_hca"}  # as the first files say them


def kinds(s: Source) -> list[str]:
    """Kinds of the layers by their compression rates, prediction modules last; without rates two
    layers that see all entries, then both kinds by turns."""
    by_rate = {0: SLIDING, **{rate: kind for kind, rate in _RATES.items()}}
    rates = s.doc.listed("compress_ratios", int)
    if rates is None:
        turns = (ALL, CHOSEN)
        return [turns[i % 2] if i >= len(turns) else ALL for i in range(s.layers)]
    if len(rates) < s.layers or not set(rates) <= set(by_rate):
        known = ", ".join(map(str, by_rate))
        raise s.error("compress_ratios", f"must list one per layer, {s.layers}, of {known}")
    return [by_rate[rate] for rate in rates[: s.layers]]


def _attention(s: Source, kind: str) -> Part:
    for key in (*_FIRST.values(), "compress_ratios", "compress_rates", "qk_rope_head_dim"):
        s.doc.ignore(key)
    s.doc.only("num_key_value_heads", 1, "several heads of compressed keys are not expressed")
    rates = s.doc.part("compress_rates")
    rates.ignore(*_RATES)
    part: Part = {
        "type": "compressed",
        "name": {CHOSEN: "chosen", ALL: "compressed"}.get(kind, "window"),
        "heads": s.heads,
        "head_dim": s.head_dim,
        "query_rank": s.doc.count("q_lora_rank"),
        "window": s.doc.count("sliding_window"),
        "out_groups": s.doc.count("o_groups"),
        "out_rank": s.doc.count("o_lora_rank"),
    }
    if kind in _RATES:
        stated = s.doc.optional_count(_FIRST[kind]) or rates.optional_count(kind)
        part["rate"] = stated or _RATES[kind]
    return part


def window(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Keys of single tokens only."""
    return [_attention(s, layer.kind), *mix(s)]


def chosen(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Entries that an index chooses."""
    index = {
        "heads": s.doc.count("index_n_heads"),
        "head_dim": s.doc.count("index_head_dim"),
        "top_k": s.doc.count("index_topk"),
    }
    return [{**_attention(s, layer.kind), "index": index}, *mix(s)]


def mix(s: Source) -> list[Part]:
    """The lanes of the residual, weighed for one branch."""
    return m.hyper(s.doc.count("hc_mult"), "matrix")


def ends(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Lanes around the experts; after the last layer the lanes become one."""
    s.doc.ignore("num_hash_layers")
    last = m.hyper(s.doc.count("hc_mult"), "head") if layer.last else []
    return mix(s) + last
