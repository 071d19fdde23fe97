"""Families of the GPT-2 line: LayerNorm and a plain MLP. One function per family gives a
ModelSpec's fields.

A function reads every key that shapes the model, so the keys a family knows are the keys its
function asks for.
"""

from __future__ import annotations

from planner.inputs.huggingface.document import Document
from planner.inputs.huggingface.parts import (
    ACTIVATIONS,
    HIDDEN,
    MAX_POSITIONS,
    Shape,
    dropout,
    even_head,
    multi_head,
    rotary_context,
    size,
)


def _plain(doc: Document, ffn: int) -> Shape:
    """LayerNorm and a plain MLP with biases everywhere: the GPT-2 block."""
    shape = size(doc)
    return {
        **shape,
        **multi_head(doc, shape),
        "ffn_hidden": ffn,
        "mlp": "plain",
        "norm": "layernorm",
        "norm_bias": True,
        "bias_qkv": True,
        "bias_attention_out": True,
        "bias_mlp": True,
    }


def _four_wide(doc: Document, key: str | None = None) -> int:
    """MLP width, four times the hidden width unless the file states another."""
    given = doc.optional_count(key) if key else None
    if given is not None:
        return given
    width = 4 * doc.count(*HIDDEN)
    if key:
        doc.note(key, width, "4 x hidden width")
    return width


def opt(doc: Document) -> Shape:
    shape = _plain(doc, doc.count("ffn_dim"))
    doc.only(
        "word_embed_proj_dim",
        shape["hidden"],
        "embeddings narrower than the hidden width are not expressed",
    )
    doc.only("layer_norm_elementwise_affine", True, "layer norms without weights are not expressed")
    doc.only("layerdrop", 0, "dropping whole layers is not expressed")
    doc.only(
        "_remove_final_layer_norm",
        False,
        "the normalisation of the first OPT releases is not expressed",
    )
    bias = doc.flag("enable_bias", True)
    positions = doc.count("max_position_embeddings", maximum=MAX_POSITIONS - 2)
    return {
        **shape,
        "positions": "learned",
        "max_positions": positions,
        "position_rows": positions + 2,  # the first two rows are kept for padding
        "activation": doc.word("activation_function", ACTIVATIONS, "relu"),
        "final_norm": doc.flag(
            "do_layer_norm_before", True
        ),  # a post-norm model ends with its last layer's norm
        "tied_embeddings": doc.flag("tie_word_embeddings", True),
        "bias_qkv": bias,
        "bias_attention_out": bias,
        "bias_mlp": bias,
        "dropout": dropout(doc, "dropout", "attention_dropout", default=True),
    }


def bloom(doc: Document) -> Shape:
    # fused kernels and exactness switches of the training code; post-layernorm residuals move no
    # weight
    doc.ignore(
        "slow_but_exact",
        "attention_softmax_in_fp32",
        "bias_dropout_fusion",
        "masked_softmax_fusion",
        "offset_alibi",
    )
    doc.ignore("skip_bias_add", "skip_bias_add_qkv", "apply_residual_connection_post_layernorm")
    return {
        **_plain(doc, _four_wide(doc)),
        "positions": "alibi",
        "max_positions": doc.count(
            "seq_length", maximum=MAX_POSITIONS, default=2048, why="as BLOOM was trained"
        ),
        "activation": "gelu",
        "embedding_norm": True,
        "tied_embeddings": doc.flag("tie_word_embeddings", True),
        "dropout": dropout(doc, "hidden_dropout", "attention_dropout"),
    }


def falcon(doc: Document) -> Shape:
    shape = size(doc)
    new, multi_query = doc.flag("new_decoder_architecture", False), doc.flag("multi_query", True)
    parallel, alibi, bias = (
        doc.flag("parallel_attn", True),
        doc.flag("alibi", False),
        doc.flag("bias", False),
    )
    given = doc.optional_count("num_kv_heads", "n_head_kv", maximum=100_000)
    if new and given is None:
        doc.note("num_kv_heads", shape["heads"], "as num_attention_heads")
    used = (given or shape["heads"]) if new else (1 if multi_query else shape["heads"])
    if given is not None and given != used:
        doc.notes.append(
            f"num_kv_heads {given} is not used: multi_query {str(multi_query).lower()} means {used}"
        )
    norms = doc.optional_count("num_ln_in_parallel_attn", maximum=2) or (2 if new else 1)
    doc.ignore("apply_residual_connection_post_layernorm")
    return {
        **shape,
        **rotary_context(doc, default=2048),
        "kv_heads": used,
        "head_dim": even_head(doc, shape),
        "ffn_hidden": _four_wide(doc, "ffn_hidden_size"),
        "mlp": "plain",
        "activation": doc.word("activation", ACTIVATIONS, "gelu"),
        "norm": "layernorm",
        "norm_bias": True,
        "norms_per_layer": norms if parallel else 2,
        "parallel_block": parallel,
        "positions": "alibi" if alibi else "rotary",
        "tied_embeddings": doc.flag("tie_word_embeddings", True),
        "bias_qkv": bias,
        "bias_attention_out": bias,
        "bias_mlp": bias,
        "dropout": dropout(doc, "hidden_dropout", "attention_dropout"),
    }


def mpt(doc: Document) -> Shape:
    attention, mlp = doc.part("attn_config"), doc.part("ffn_config")
    alibi, rotary = attention.flag("alibi", True), attention.flag("rope", False)
    attention.ignore(
        "attn_impl",
        "clip_qkv",
        "softmax_scale",
        "alibi_bias_max",
        "attn_uses_sequence_id",
        "model_type",
    )
    attention.ignore("rope_theta", "rope_impl", "rope_dail_config", "rope_hf_config")
    # transformers 4 wrote the attention part with the keys of a whole model
    attention.ignore(
        "is_encoder_decoder",
        "add_cross_attention",
        "tie_word_embeddings",
        "pruned_heads",
        "architectures",
    )
    attention.only(
        "attn_type", "multihead_attention", "shared key/value heads of MPT are not expressed"
    )
    attention.only("prefix_lm", False, "only causal attention is planned")
    attention.only("qk_ln", False, "norms on queries and keys of MPT are not expressed")
    attention.only("qk_gn", False, "norms on queries and keys of MPT are not expressed")
    attention.only("sliding_window_size", -1, "sliding windows of MPT are not expressed")
    mlp.only("ffn_type", "mptmlp", "gated MLPs of MPT are not expressed")
    doc.ignore(
        "init_device",
        "init_config",
        "embedding_fraction",
        "logit_scale",
        "verbose",
        "fc_type",
        "name",
        "loss_fn",
    )
    doc.ignore("use_pad_tok_in_ffn")
    doc.only("residual_modification", None, "scaled residuals are not expressed")
    norms = {"low_precision_layernorm": "layernorm", "layernorm": "layernorm", "rmsnorm": "rmsnorm"}
    norm = doc.word(
        "norm_type", {**norms, "low_precision_rmsnorm": "rmsnorm"}, "low_precision_layernorm"
    )
    bias, learned = not doc.flag("no_bias", True), doc.flag("learned_pos_emb", True)
    shape = _plain(doc, doc.count(*HIDDEN) * doc.count("expansion_ratio", default=4))
    drop = attention.rate("attn_pdrop") or 0.0
    return {
        **shape,
        "positions": "alibi" if alibi else "rotary" if rotary else "learned" if learned else "none",
        "max_positions": doc.count("max_seq_len", maximum=MAX_POSITIONS),
        "activation": "gelu",
        "norm": norm,
        "norm_bias": bias and norm == "layernorm",
        "tied_embeddings": doc.flag("tie_word_embeddings", True),
        "bias_qkv": bias,
        "bias_attention_out": bias,
        "bias_mlp": bias,
        "dropout": dropout(doc, "resid_pdrop", "emb_pdrop") or drop > 0,
    }
