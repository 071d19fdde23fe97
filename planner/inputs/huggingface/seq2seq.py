"""Encoder-decoders: T5 and what has its layers, BART and mBART. The sequence is what the encoder
reads; the decoder is a tower of its own."""

from __future__ import annotations

from typing import Any

from planner.inputs.huggingface.document import Document
from planner.inputs.huggingface.source import ACTIVATIONS, MAX_POSITIONS

Shape = dict[str, Any]

_MAX_LAYERS = 100_000
# tokens of the decoder beside 512 of the encoder whose spans of 3, 15 %, are left out
# (t5/data/preprocessors.py, random_spans_helper); BART's writes the text as it reads it
T5_TARGET = 114
_LAYER_NORM = 2  # vectors: weight and bias


def _stack(first: str, rest: str, last: str, layers: int, tower: str) -> list[dict[str, Any]]:
    """Layers of a stack, whose first and last have something beside them."""
    named = [first, *[rest] * (layers - 2), last] if layers > 1 else [first]
    stack: list[dict[str, Any]] = []
    for name in named:
        if stack and stack[-1]["layers"] == [name]:
            stack[-1]["times"] += 1
        else:
            stack.append({"layers": [name], "times": 1, "tower": tower})
    return stack


def _extra(name: str, elements: int) -> dict[str, Any]:
    return {"type": "extra", "name": name, "elements": elements}


def _layers(doc: Document, reading: str, writing: str) -> tuple[int, int]:
    """Layers of encoder and decoder."""
    layers = doc.count(reading, maximum=_MAX_LAYERS)
    return layers, doc.optional_count(writing, maximum=_MAX_LAYERS) or layers


def dropout(doc: Document, *keys: str, default: bool = False) -> bool:
    """Whether any of the dropout rates is above zero."""
    rates = [rate for key in keys if (rate := doc.rate(key)) is not None]
    if not rates:
        doc.note(keys[0], 0.1 if default else 0.0, "as transformers assumes")
        return default
    return any(rate > 0 for rate in rates)


def t5(doc: Document) -> Shape:
    """T5, mT5 and T5 v1.1: distances are a bias of the scores, one table per stack."""
    return _t5(doc, every=False)


def umt5(doc: Document) -> Shape:
    """T5 with a table of distances in every layer."""
    return _t5(doc, every=True)


def _t5(doc: Document, every: bool) -> Shape:
    hidden, heads = doc.count("d_model"), doc.count("num_heads", maximum=_MAX_LAYERS)
    read, written = _layers(doc, "num_layers", "num_decoder_layers")
    kind = {"relu": (False, "relu"), "gated-gelu": (True, "gelu"), "gated-silu": (True, "silu")}
    word = doc.word("feed_forward_proj", {name: name for name in kind}, "relu")
    gated, activation = kind[word]
    if doc.has("is_gated_act") and bool(doc.get("is_gated_act")) != gated:
        raise doc.error("is_gated_act", f"contradicts feed_forward_proj {word!r}; leave it out")
    tied = doc.flag("tie_word_embeddings", True)
    if not tied:
        doc.notes.append("tie_word_embeddings false: a head of its own, as released files have it")
    buckets = doc.count("relative_attention_num_buckets", default=32)
    doc.ignore("relative_attention_max_distance", "dense_act_fn", "n_positions")
    doc.ignore("initializer_factor", "max_length", "output_past", "is_encoder_decoder")
    doc.ignore("tokenizer_class", "classifier_dropout", "scale_decoder_outputs")
    width = doc.count("d_kv", default=64)
    each = {"heads": heads, "kv_heads": heads, "head_dim": width, "rotary": False}
    biased = {"type": "attention", **each, "scores_biased": True}
    mlp = {"ffn_hidden": doc.count("d_ff"), "gated": gated, "activation": activation}
    parts = [
        {**biased, "name": "reading", "mask": "full"},
        {**biased, "name": "writing", "mask": "causal"},
        {"type": "cross_attention", "name": "cross", **each},
        {"type": "mlp", "name": "mlp", **mlp},
        _extra("distances", buckets * heads),
        _extra("last_norm", hidden),
    ]
    del parts[2]["rotary"]
    with_table = "reading & distances + mlp", "writing & distances + cross + mlp"
    plain = with_table if every else ("reading + mlp", "writing + cross + mlp")
    first = with_table[0] if read > 1 else with_table[0] + " & last_norm"
    stack = _stack(first, plain[0], plain[0] + " & last_norm", read, "")
    return {
        "layers": read + written,
        "hidden": hidden,
        "vocab": doc.count("vocab_size"),
        "max_positions": 512,
        "head_tower": "decoder",
        "norm": "rmsnorm",
        "positions": "none",
        "tied_embeddings": tied,
        "dropout": dropout(doc, "dropout_rate"),
        "towers": [{"name": "decoder", "tokens": T5_TARGET}],
        "parts": parts,
        "stack": stack + _stack(with_table[1], plain[1], plain[1], written, "decoder"),
    }


def bart(doc: Document) -> Shape:
    """BART: learned positions and a norm of the embedding in both stacks, norms after blocks."""
    return _bart(doc, final=False)


def mbart(doc: Document) -> Shape:
    """BART with norms before blocks and one at the end of both stacks."""
    return _bart(doc, final=True)


def _bart(doc: Document, final: bool) -> Shape:
    hidden, rows = doc.count("d_model"), doc.count("max_position_embeddings", maximum=MAX_POSITIONS)
    read, written = _layers(doc, "encoder_layers", "decoder_layers")
    paired = doc.flag("is_encoder_decoder", True)
    doc.only("tie_word_embeddings", True, "a table of words for each stack is not expressed")
    doc.ignore("num_hidden_layers", "activation_dropout", "classifier_dropout", "init_std")
    doc.ignore("encoder_layerdrop", "decoder_layerdrop", "scale_embedding", "use_cache")
    doc.ignore("classif_dropout", "add_bias_logits", "add_final_layer_norm", "normalize_before")
    doc.ignore("normalize_embedding", "static_position_embeddings", "extra_pos_embeddings")
    doc.ignore("gradient_checkpointing", "force_bos_token_to_be_generated", "num_beams")
    doc.ignore("early_stopping", "length_penalty", "max_length", "min_length")
    doc.ignore("no_repeat_ngram_size", "output_past", "tokenizer_class")
    activation = doc.word("activation_function", ACTIVATIONS, "gelu")

    def attention(kind: str, name: str, stack: str) -> dict[str, Any]:
        heads = doc.count(f"{stack}_attention_heads", maximum=_MAX_LAYERS)
        if hidden % heads:
            raise doc.error(f"{stack}_attention_heads", f"must divide d_model {hidden}")
        shape = {"heads": heads, "kv_heads": heads, "head_dim": hidden // heads}
        return {"type": kind, "name": name, **shape, "bias_qkv": True, "bias_out": True}

    def mlp(stack: str) -> dict[str, Any]:
        shape = {"ffn_hidden": doc.count(f"{stack}_ffn_dim"), "gated": False, "bias": True}
        return {"type": "mlp", "name": f"{stack}_mlp", "activation": activation, **shape}

    reading = "reading + encoder_mlp"
    first = f"{reading} & encoder_ends"
    writing = "writing + cross + decoder_mlp"
    # of the encoder: positions, the norm of its embedding, and where there is one the last
    ends = (rows + 2) * hidden + (1 + final) * _LAYER_NORM * hidden
    decoder = {**attention("attention", "writing", "decoder"), "rotary": False}
    parts = [
        {**attention("attention", "reading", "encoder"), "mask": "full", "rotary": False},
        mlp("encoder"),
        decoder,
        attention("cross_attention", "cross", "decoder"),
        mlp("decoder"),
        _extra("encoder_ends", ends),
    ]
    # a decoder by itself has the weights that read an encoder and nothing that they read
    unread = 4 * (hidden + 1) * hidden + _LAYER_NORM * hidden
    towers = {
        "head_tower": "decoder",
        "towers": [{"name": "decoder", "tokens": min(rows, 8192)}],
        "parts": parts,
        "stack": _stack(first, reading, reading, read, "")
        + _stack(writing, writing, writing, written, "decoder"),
    }
    single = {
        "parts": [decoder, mlp("decoder"), _extra("unread", unread)],
        "stack": [{"layers": ["writing + decoder_mlp & unread"], "times": written}],
    }
    return {
        "layers": written + read * paired,
        "hidden": hidden,
        "vocab": doc.count("vocab_size"),
        "max_positions": rows,
        "position_rows": rows + 2,
        "norm": "layernorm",
        "norm_bias": True,
        "embedding_norm": True,
        "final_norm": final,
        "positions": "learned",
        "tied_embeddings": True,
        "dropout": dropout(doc, "dropout", "attention_dropout"),
        **(towers if paired else single),
    }
