"""Read a type of the table: defaults of its class, sizes, layers, and the model around them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from planner.inputs.huggingface import code, kinds, layers, others
from planner.inputs.huggingface.document import Document
from planner.inputs.huggingface.encoders import ENCODERS
from planner.inputs.huggingface.families import FAMILIES as DECODERS
from planner.inputs.huggingface.family import Family, Layer
from planner.inputs.huggingface.harmless import ignored, is_further, is_numeric, is_order
from planner.inputs.huggingface.source import (
    HIDDEN,
    LAYERS,
    MAX_LAYERS,
    MAX_POSITIONS,
    POSITIONS,
    SIZES,
    Source,
)

_DEFAULTS = Path(__file__).parents[2] / "data" / "hf_defaults.json"
TYPES = {**DECODERS, **ENCODERS}
_ROPE = ("rope_scaling", "rope_parameters")


@cache
def defaults() -> dict[str, dict[str, Any]]:
    """By type: keys of its class in transformers with their defaults, other spellings of them, and
    the type of what is nested as text_config."""
    table: dict[str, dict[str, Any]] = json.loads(_DEFAULTS.read_text("utf-8"))
    return table


def _missing(doc: Document, spellings: Mapping[str, str]) -> list[str]:
    """Required sizes that a file states under none of their names. An absent vocabulary size is the
    class's default."""
    needed = (("num_hidden_layers", LAYERS), ("hidden_size", HIDDEN))
    missing = [
        key
        for key, names in needed
        if all(
            doc.data.get(name) is None
            for name in (*names, *(a for a, real in spellings.items() if real in names))
        )
    ]
    return [*missing, "vocab_size"] if doc.data.get("vocab_size", 0) is None else missing


def read(doc: Document, family: str) -> dict[str, Any]:
    """Fields of a ModelSpec for a type of the table. Raises PlanError for what it does not say."""
    f = TYPES[family]
    if f.whole:
        return f.whole(doc)
    known = defaults().get(f.like or family, {})
    spellings = {**known.get("alias", {}), **f.spellings}
    missing = [] if f.layer_count else _missing(doc, spellings)
    if missing:
        verb, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        raise doc.error(", ".join(missing), f"{verb} missing; the file must state {them}")
    doc = doc.of_class(known.get("keys", {}), spellings)
    count = f.layer_count(doc) if f.layer_count else None
    s = Source(
        doc, count or doc.count(doc.first(LAYERS), maximum=MAX_LAYERS), doc.count(doc.first(HIDDEN))
    )
    if f.adapt:
        f = f.adapt(s, f)
    rates = s.rates()
    shape = {
        "layers": s.layers,
        "hidden": s.hidden,
        "vocab": doc.count("vocab_size"),
        "norm": f.norm,
        "norm_bias": s.on(f.norm_bias),
        "norms_per_block": f.parallel_norms if s.on(f.parallel) else f.norms,
        "embedding_norm": f.embedding_norm,
        "final_norm": f.final_norm,
        "tied_embeddings": f.tied and s.flag("tie_word_embeddings"),
        "bias_head": s.on(f.bias_head),
        "dropout": bool(rates) or f.dropout,
        "dropout_of": "attention" if rates == ["attention_dropout"] else "all",
        "joint": f.joint,
        "holds": code.holds_of(doc.data, family, f.like),
        **_positions(s, f),
        **layers.stacked(_layers(s, f)),
    }
    doc.only("attn_output_gate", True, "attention without its gate is not expressed")
    for key, value in f.always.items():
        doc.only(key, value, f"another is not expressed for {family}")
    if doc.get("use_bidirectional_attention") in (True, "all"):
        raise doc.error("use_bidirectional_attention", "only causal attention is planned")
    doc.ignore(*ignored().get(family, ()), *(key for key in doc.data if is_numeric(key)))
    if s.kinds() is not None:
        doc.ignore(*(key for key in doc.data if is_order(key)))
    if doc.data.get("mlp_layer_types") is not None:
        doc.ignore("first_k_dense_replace")
    _leave_out_further(s)
    doc.say_assumed()
    _ignore_idle(s, known)
    return shape


def _leave_out_further(s: Source) -> None:
    """Modules that predict further tokens: transformers has none, so that nothing counts them."""
    for key in filter(is_further, s.doc.data):
        s.doc.ignore(key)
        if key.startswith("num_") and s.doc.optional_count(key, minimum=0):
            count = f"{key} {s.doc.get(key)}"
            s.note(f"{count} is not counted: multi-token prediction is left out, --mtp trains it")


def _ignore_idle(s: Source, known: dict[str, Any]) -> None:
    """Keys that no layer has read: sizes of parts that this model lacks, and keys equal to the
    default of the class."""
    keys = known.get("keys", {})
    for key, value in s.doc.data.items():
        same = key in keys and type(value) is type(keys[key]) and value == keys[key]
        other = others.is_other(key) and isinstance(value, dict)
        if same or other or value in ([], {}) or (key in SIZES and key in keys):
            s.doc.ignore(key)


def _positions(s: Source, f: Family) -> dict[str, Any]:
    name = s.doc.first(POSITIONS)
    tables = [table for key in _ROPE if (table := s.doc.part(key)).data]
    for table in tables:
        table.ignore(*table.data)
    positions = s.doc.count(name, maximum=MAX_POSITIONS, default=2048, why="assumed")
    for table in (s.doc, *tables):
        key = "original_max_position_embeddings"
        stated = key not in table.assumed
        original = table.optional_count(key, maximum=MAX_POSITIONS) if stated else None
        if original is not None and original < positions:
            s.note(
                f"context {original}: rotary scaling extends it to {positions} after the main"
                " training"
            )
            positions = original
    shape: dict[str, Any] = {"positions": f.positions, "max_positions": positions}
    if f.positions == "learned" and f.rows:
        shape["position_rows"] = positions + f.rows
    return shape


def _layers(s: Source, f: Family) -> list[layers.Blocks]:
    listed = s.kinds()
    named = f.kinds(s) if listed is None else listed
    named = f.order(named)
    order = [kinds.SYNONYMS.get(kind, kind) if kind not in f.mixers else kind for kind in named]
    for kind in order:
        if kind not in f.mixers:
            raise s.error(
                "layer_types",
                f"{kind!r:.60} is not understood; known here: {', '.join(sorted(f.mixers))}",
            )
    if len(order) != s.layers:
        raise s.error("layer_types", f"must list one kind per layer, {s.layers} in all")
    sparse = f.sparse(s)
    out = []
    for i, kind in enumerate(order):
        layer = Layer(i, kind, sparse[i], i == s.layers - 1)
        out.append(_blocks(s, f, layer))
    return out


def _blocks(s: Source, f: Family, layer: Layer) -> layers.Blocks:
    if f.blocks:
        return f.blocks(s, f, layer)
    mixer = f.mixers[layer.kind](s, f, layer) + f.beside_mixer(s, f, layer)
    if not f.has_mlp:
        return [mixer]
    mlp = (f.moe if layer.sparse else f.mlp)(s, f, layer) + f.beside_mlp(s, f, layer)
    return [mixer + mlp] if s.on(f.parallel) else [mixer, mlp]
