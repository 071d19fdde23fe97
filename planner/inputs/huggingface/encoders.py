"""The table of encoders that transformers has as language models too: BERT and what differs from
it. They attend both ways unless is_decoder says otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.inputs.huggingface import mixers as m
from planner.inputs.huggingface.family import Family, Layer
from planner.inputs.huggingface.kinds import FULL
from planner.inputs.huggingface.layers import Part
from planner.inputs.huggingface.source import Source

_NORM = 2  # vectors of a layer norm: weight and bias


def both_ways(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Attention to all tokens of a sequence; causal where the model is a decoder."""
    return m.attention(s, f, layer, mask="causal" if s.flag("is_decoder") else "full")


def segments(s: Source, layer: Layer) -> list[Part]:
    """The table of token types, beside the first layer."""
    s.doc.only("tie_word_embeddings", True, "a head of its own has two biases, not expressed")
    rows = s.doc.optional_count("type_vocab_size", minimum=0) or 0
    if s.flag("use_task_id"):
        rows += s.doc.count("task_type_vocab_size")
    return m.extra(rows * s.hidden) if layer.place == 0 else []


def transform(s: Source, layer: Layer) -> list[Part]:
    """The dense layer and the norm before the logits, beside the last layer."""
    if not layer.last:
        return []
    return m.projection(s.hidden, s.hidden, bias=True) + m.extra(_NORM * s.hidden)


def plain_ends(s: Source, f: Family, layer: Layer) -> list[Part]:
    """No token types and no transform."""
    s.doc.only("tie_word_embeddings", True, "a head of its own has two biases, not expressed")
    return []


def bert_ends(s: Source, f: Family, layer: Layer) -> list[Part]:
    return segments(s, layer) + transform(s, layer)


def pooled_ends(s: Source, f: Family, layer: Layer) -> list[Part]:
    """BigBird keeps the pooler that only other heads use."""
    pooler = m.projection(s.hidden, s.hidden, bias=True) if layer.last else []
    return bert_ends(s, f, layer) + pooler


def narrow_ends(s: Source, f: Family, layer: Layer) -> list[Part]:
    """RoFormer: embeddings may be narrower than the model."""
    s.doc.only("embedding_size", s.hidden, "embeddings of another width are not expressed")
    return bert_ends(s, f, layer)


def adapters(s: Source, f: Family, layer: Layer) -> list[Part]:
    """X-MOD: an adapter per language, of which a sequence uses one."""
    words = s.doc.listed("languages", str) or []
    width = s.hidden // s.doc.count("adapter_reduction_factor")
    matrices = m.projection(s.hidden, width, bias=True) + m.projection(width, s.hidden, bias=True)
    return matrices * len(words) + bert_ends(s, f, layer)


def sounds(s: Source, f: Family, layer: Layer) -> list[Part]:
    """RoCBert: embeddings of sound and shape, mapped with the word's to one width."""
    if layer.place:
        return bert_ends(s, f, layer)
    d = s.doc
    wide, rows = s.hidden, 0
    for name in ("pronunciation", "shape"):
        d.only(f"enable_{name}", True, f"a model without embeddings of {name} is not expressed")
        each = d.count(f"{name}_embed_dim")
        wide, rows = wide + each, rows + each * d.count(f"{name}_vocab_size")
    joined = m.projection(wide, s.hidden, bias=True) if s.flag("concat_input") else []
    return bert_ends(s, f, layer) + m.extra(rows) + joined


def xlm_attention(s: Source, f: Family, layer: Layer) -> list[Part]:
    return m.attention(s, f, layer, mask="causal" if s.flag("causal") else "full")


def xlm_mlp(s: Source, f: Family, layer: Layer) -> list[Part]:
    activation = "gelu" if s.flag("gelu_activation") else "relu"
    return m.mlp(s, f, layer, ffn_hidden=4 * s.hidden, activation=activation)


def languages(s: Source, f: Family, layer: Layer) -> list[Part]:
    """A table of languages, where there are several."""
    s.doc.only("asm", False, "an adaptive softmax is not expressed")
    s.doc.only("sinusoidal_embeddings", False, "fixed positions of XLM are not expressed")
    rows = s.doc.count("n_langs")
    used = s.flag("use_lang_emb") and rows > 1 and layer.place == 0
    return m.extra(rows * s.hidden * used)


_BERT = replace(
    m.LLAMA,
    mixers={FULL: both_ways},
    beside_mlp=bert_ends,
    gated=False,
    norm="layernorm",
    norm_bias=True,
    bias_qkv=True,
    bias_out=True,
    bias_mlp=True,
    bias_head=True,
    embedding_norm=True,
    final_norm=False,
    positions="learned",
)


def _bert(**traits: Any) -> Family:
    return replace(_BERT, **traits)


_PRE: dict[str, Any] = {"embedding_norm": False, "final_norm": True}
ENCODERS: dict[str, Family] = {
    "bert": _BERT,
    "bert-generation": _bert(beside_mlp=plain_ends),
    "big_bird": _bert(bias_qkv="use_bias", beside_mlp=pooled_ends),
    "camembert": _BERT,
    "data2vec-text": _BERT,
    "ernie": _BERT,
    "megatron-bert": _bert(**_PRE),
    "roberta": _BERT,
    "roberta-prelayernorm": _bert(final_norm=True),
    "roc_bert": _bert(beside_mlp=sounds),
    "roformer": _bert(positions="none", beside_mlp=narrow_ends),
    "xlm-roberta": _BERT,
    "xlm-roberta-xl": _bert(**_PRE),
    "xlm": _bert(mixers={FULL: xlm_attention}, mlp=xlm_mlp, beside_mlp=languages),
    "xmod": _bert(beside_mlp=adapters),
}
