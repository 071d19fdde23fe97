"""What several families share: sizes, heads, positions, windows, dropout and biases, as a
config.json states them.

Where a file is silent, the default is the one of the family's class in transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.inputs.huggingface.document import Document

Shape = dict[str, Any]

# several spellings of one thing; transformers maps them onto each other
LAYERS = ("num_hidden_layers", "n_layer", "n_layers")
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads")
MAX_POSITIONS = 1_000_000_000
_ROPE = (
    "rope_theta",
    "rope_interleave",
    "rotary_pct",
    "rotary_emb_base",
    "partial_rotary_factor",
    "rotary",
)
GELU = dict.fromkeys(
    ("gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh", "quick_gelu"), "gelu"
)
ACTIVATIONS = {**GELU, "silu": "silu", "swish": "silu", "relu": "relu", "relu2": "relu2"}


def size(doc: Document) -> Shape:
    """What every family states: layers, hidden width, heads, vocabulary."""
    stated = (LAYERS, HIDDEN, HEADS, ("vocab_size",))
    missing = [names[0] for names in stated if all(doc.data.get(n) is None for n in names)]
    if len(missing) > 1:
        raise doc.error(", ".join(missing), "are missing; the file must state them")
    return {
        "layers": doc.count(*LAYERS, maximum=100_000),
        "hidden": doc.count(*HIDDEN),
        "heads": doc.count(*HEADS, maximum=100_000),
        "vocab": doc.count("vocab_size"),
    }


def even_head(doc: Document, shape: Shape) -> int:
    """Head width of families that split the hidden width evenly."""
    if shape["hidden"] % shape["heads"]:
        key = next(name for name in HEADS if doc.has(name))
        raise doc.error(
            key, f"must divide the hidden width {shape['hidden']}, or head_dim must be given"
        )
    return int(shape["hidden"] // shape["heads"])


def multi_head(doc: Document, shape: Shape) -> Shape:
    """One key/value head per query head, as the older families have."""
    return {"kv_heads": shape["heads"], "head_dim": even_head(doc, shape)}


def grouped_heads(
    doc: Document, shape: Shape, *, kv_default: bool = True, head_default: bool = True
) -> Shape:
    """Grouped-query attention. Where transformers would assume a constant, the file has to state
    the number."""
    read_kv = doc.optional_count if kv_default else doc.stated_count
    kv = read_kv("num_key_value_heads", maximum=100_000)
    head = doc.optional_count("head_dim") if head_default else doc.count("head_dim")
    if kv is None:
        kv = shape["heads"]
        doc.note("num_key_value_heads", kv, "as num_attention_heads")
    if head is None:
        head = even_head(doc, shape)
        doc.note("head_dim", head, "hidden_size / num_attention_heads")
    return {"kv_heads": kv, "head_dim": head}


def rotary_context(doc: Document, default: int | None = None) -> Shape:
    """Context the model was trained with: the one before rotary scaling, where the file states
    it."""
    doc.ignore(*_ROPE)
    positions = doc.count("max_position_embeddings", maximum=MAX_POSITIONS, default=default)
    # transformers 5 writes rope_parameters for what was rope_scaling; Phi-3 has the original at the
    # top as well
    tables = [
        table for key in ("rope_scaling", "rope_parameters") if (table := _rope_table(doc, key))
    ]
    for table in (doc, *tables):
        original = table.optional_count("original_max_position_embeddings", maximum=MAX_POSITIONS)
        if original is not None and original < positions:
            doc.notes.append(
                f"context {original}: rotary scaling extends it to {positions} after the main"
                " training"
            )
            positions = original
    return {"positions": "rotary", "max_positions": positions}


def _rope_table(doc: Document, key: str) -> Document | None:
    """The table of rotary settings; only the original context in it matters, so nothing in it is
    unknown."""
    table = doc.part(key)
    table.ignore(*table.data)
    return table if table.data else None


def dropout(doc: Document, *keys: str, default: bool = False) -> bool:
    """Whether any of the dropout rates is above zero."""
    rates = [rate for key in keys if (rate := doc.rate(key)) is not None]
    if not rates:
        doc.note(keys[0], 0.1 if default else 0.0, "as transformers assumes")
        return default
    return any(rate > 0 for rate in rates)


def attention_dropout(doc: Document) -> Shape:
    """Dropout of the scores alone."""
    return {"dropout": True, "dropout_of": "attention"} if dropout(doc, "attention_dropout") else {}


def windows(
    doc: Document, layers: int, windowed: Callable[[int], bool], default: int | None = None
) -> Shape:
    """Sliding windows: layer_types if the file lists them (transformers 5), else the rule of the
    family."""
    kinds = doc.get("layer_types")
    if kinds is None:
        pattern = [windowed(layer) for layer in range(layers)]
    else:
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise doc.error("layer_types", f"must list one kind per layer, {layers} in all")
        for kind in kinds:
            if kind not in ("full_attention", "sliding_attention"):
                raise doc.error(
                    "layer_types",
                    f"{kind!r} not understood; known: full_attention, sliding_attention",
                )
        pattern = [kind == "sliding_attention" for kind in kinds]
    if not any(pattern):
        doc.ignore("sliding_window")
        return {}
    if doc.has("sliding_window"):
        width = doc.optional_count("sliding_window", maximum=MAX_POSITIONS)
    else:
        width = default
        if default is not None:
            doc.note("sliding_window", default, "as transformers assumes")
    if width is None and kinds is not None:
        raise doc.error("sliding_window", "is needed: layer_types lists sliding_attention")
    if width is None:
        return {}
    every = next((layer for layer in range(1, layers) if pattern[layer]), layers)
    if pattern != [layer % every == 0 for layer in range(layers)]:
        key = "layer_types" if kinds is not None else "max_window_layers"
        raise doc.error(
            key,
            "an irregular set of windowed layers is not expressed; only all, none, or every"
            " n-th is",
        )
    return {"attention_window": width, "window_every": every}


def attention_bias(doc: Document, default: bool = False) -> Shape:
    """Biases of all four attention projections."""
    bias = doc.flag("attention_bias", default)
    return {"bias_qkv": bias, "bias_attention_out": bias}
