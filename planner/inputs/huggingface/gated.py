"""Families of the Llama line: rotary positions and a gated MLP. One function per family gives a
ModelSpec's fields.

A function reads every key that shapes the model, so the keys a family knows are the keys its
function asks for.
"""

from __future__ import annotations

from planner.inputs.huggingface.document import Document
from planner.inputs.huggingface.parts import (
    ACTIVATIONS,
    GELU,
    Shape,
    attention_bias,
    attention_dropout,
    dropout,
    grouped_heads,
    rotary_context,
    size,
    windows,
)


def _gated(
    doc: Document, *, tied: bool = False, activation: str | None = "silu", **heads: bool
) -> Shape:
    """Rotary, RMSNorm, gated MLP: the Llama block, which most families vary. `activation` None: the
    caller reads it."""
    shape = size(doc)
    if activation:
        shape["activation"] = doc.word("hidden_act", ACTIVATIONS, activation)
    return {
        **shape,
        **grouped_heads(doc, shape, **heads),
        **rotary_context(doc),
        "ffn_hidden": doc.count("intermediate_size"),
        "mlp": "gated",
        "norm": "rmsnorm",
        "tied_embeddings": doc.flag("tie_word_embeddings", tied),
        **attention_dropout(doc),
    }


def llama(doc: Document) -> Shape:
    return {**_gated(doc), **attention_bias(doc), "bias_mlp": doc.flag("mlp_bias", False)}


def mistral(doc: Document) -> Shape:
    shape = _gated(doc, kv_default=False)
    return {**shape, **windows(doc, shape["layers"], lambda layer: True, default=4096)}


def mixtral(doc: Document) -> Shape:
    shape = _gated(doc, kv_default=False)
    doc.ignore("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")
    moe = {
        "experts": doc.count("num_local_experts", "num_experts", minimum=2, maximum=100_000),
        "experts_per_token": doc.count("num_experts_per_tok", maximum=100_000),
        "ffn_hidden": shape["ffn_hidden"],
    }
    return {**shape, **windows(doc, shape["layers"], lambda layer: True), "moe": moe}


def _qwen_windows(doc: Document, layers: int) -> Shape:
    doc.only("use_mrope", False, "multimodal rotary positions are not expressed")
    first = doc.optional_count("max_window_layers", minimum=0)
    if not doc.flag("use_sliding_window", False):
        return windows(doc, layers, lambda layer: False)
    if first is None:
        first = 28
        doc.note("max_window_layers", first, "as transformers assumes")
    return windows(doc, layers, lambda layer: layer >= first, default=4096)


def qwen2(doc: Document) -> Shape:
    shape = _gated(doc, kv_default=False)
    return {**shape, **_qwen_windows(doc, shape["layers"]), "bias_qkv": True}


def qwen3(doc: Document) -> Shape:
    shape = _gated(doc, kv_default=False, head_default=False)
    return {
        **shape,
        **_qwen_windows(doc, shape["layers"]),
        **attention_bias(doc),
        "qk_norm": "per_head",
    }


def _qwen_experts(doc: Document) -> Shape:
    """Experts in layers step-1, 2*step-1, ...: the first step-1 layers are dense, then every
    step-th has experts."""
    doc.only("mlp_only_layers", [], "dense layers at listed places are not expressed")
    doc.only(
        "use_sliding_window",
        False,
        "sliding windows of Qwen mixture-of-experts models are not expressed",
    )
    doc.ignore("sliding_window", "max_window_layers")
    doc.ignore("norm_topk_prob", "output_router_logits", "router_aux_loss_coef")
    step = doc.count("decoder_sparse_step", default=1)
    return {
        "experts": doc.count("num_experts", "num_local_experts", minimum=2, maximum=100_000),
        "experts_per_token": doc.count("num_experts_per_tok", maximum=100_000),
        "ffn_hidden": doc.count("moe_intermediate_size"),
        "dense_layers": step - 1,
        "every": step,
    }


def qwen2_moe(doc: Document) -> Shape:
    shape = _gated(doc, kv_default=False)
    shared = doc.count("shared_expert_intermediate_size")
    moe = {**_qwen_experts(doc), "shared_ffn_hidden": shared, "shared_gate": True}
    return {
        **shape,
        **windows(doc, shape["layers"], lambda layer: False),
        "bias_qkv": doc.flag("qkv_bias", True),
        "moe": moe,
    }


def qwen3_moe(doc: Document) -> Shape:
    doc.only("qkv_bias", False, "biases of queries, keys and values alone are not expressed")
    doc.only("use_qk_norm", True, "queries and keys without norms are not expressed")
    doc.only("shared_expert_intermediate_size", 0, "a shared expert of Qwen3 is not expressed")
    shape = _gated(doc, kv_default=False)
    return {**shape, **attention_bias(doc), "qk_norm": "per_head", "moe": _qwen_experts(doc)}


def gemma(doc: Document) -> Shape:
    doc.only("use_bidirectional_attention", False, "only causal attention is planned")
    # the released files name the activation under one key or both, "gelu" meaning the tanh
    # approximation as well
    keys = [key for key in ("hidden_activation", "hidden_act") if doc.get(key) is not None]
    words = {doc.word(key, GELU, "gelu_pytorch_tanh") for key in keys}
    if not words:
        doc.note("hidden_activation", "gelu_pytorch_tanh", "as transformers assumes")
    shape = _gated(doc, tied=True, activation=None, kv_default=False, head_default=False)
    return {**shape, **attention_bias(doc), "activation": "gelu"}


def gemma2(doc: Document) -> Shape:
    shape = gemma(doc)
    doc.ignore("query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping")
    alternating = windows(doc, shape["layers"], lambda layer: layer % 2 == 0, default=4096)
    return {**shape, **alternating, "norms_per_layer": 4}


def phi3(doc: Document) -> Shape:
    for key in ("attention_bias", "mlp_bias", "lm_head_bias"):
        doc.only(key, False, "Phi-3 has no biases")
    doc.ignore("full_attn_mod", "interpolate_factor")  # of Phi-4 mini's own code
    shape = _gated(doc)
    hidden = dropout(doc, "resid_pdrop", "embd_pdrop")
    drop = {"dropout": True, "dropout_of": "all"} if hidden else {}
    return {**shape, **windows(doc, shape["layers"], lambda layer: True), **drop}


def _latent(doc: Document) -> Shape:
    """The part that DeepSeek-V2 and V3 share: latent attention, experts after the first dense
    layers."""
    shape = size(doc)
    doc.only(
        "num_key_value_heads", shape["heads"], "latent attention has one key and value per head"
    )
    doc.only("attention_bias", False, "biases of latent attention are not expressed")
    doc.ignore(
        "head_dim", "qk_head_dim"
    )  # transformers 5 writes the rotated width here, which qk_rope_head_dim states
    doc.ignore(
        "routed_scaling_factor",
        "norm_topk_prob",
        "scoring_func",
        "aux_loss_alpha",
        "seq_aux",
        "ep_size",
    )
    doc.ignore("output_router_logits", "router_aux_loss_coef")
    latent = {
        "query_rank": doc.stated_count("q_lora_rank"),  # null: queries are projected directly
        "kv_rank": doc.count("kv_lora_rank"),
        "nope_head_dim": doc.count("qk_nope_head_dim"),
        "rope_head_dim": doc.count("qk_rope_head_dim"),
        "value_head_dim": doc.count("v_head_dim"),
    }
    width, every = doc.count("moe_intermediate_size"), doc.count("moe_layer_freq", default=1)
    dense = doc.count("first_k_dense_replace", minimum=0)
    shared = doc.stated_count("n_shared_experts", minimum=0, maximum=1000) or 0
    groups, reached = doc.optional_count("n_group"), doc.optional_count("topk_group")
    limited = doc.get("topk_method") != "greedy" and groups is not None and groups > 1
    moe = {
        "experts": doc.count(
            "n_routed_experts", "num_experts", "num_local_experts", minimum=2, maximum=100_000
        ),
        "experts_per_token": doc.count("num_experts_per_tok", maximum=100_000),
        "ffn_hidden": width,
        "shared_ffn_hidden": width * shared,
        "dense_layers": -(-dense // every)
        * every,  # experts sit in layers that are a multiple of moe_layer_freq
        "every": every,
        "group_limit": reached if limited else None,
    }
    return {
        **shape,
        **rotary_context(doc),
        "kv_heads": shape["heads"],
        "head_dim": latent["value_head_dim"],
        "ffn_hidden": doc.count("intermediate_size"),
        "activation": doc.word("hidden_act", ACTIVATIONS, "silu"),
        "tied_embeddings": doc.flag("tie_word_embeddings", False),
        **attention_dropout(doc),
        "latent": latent,
        "moe": moe,
    }


def deepseek_v2(doc: Document) -> Shape:
    doc.only("mlp_bias", False, "biases in a mixture of experts are not expressed")
    shape = _latent(doc)
    method = doc.get("topk_method")
    if method not in (None, "greedy", "group_limited_greedy"):
        raise doc.error("topk_method", "not understood; known: greedy, group_limited_greedy")
    if method is None:
        shape["moe"]["group_limit"] = None
    return shape


def deepseek_v3(doc: Document) -> Shape:
    doc.only("topk_method", "noaux_tc", "another choice of experts is not expressed")
    extra = doc.optional_count("num_nextn_predict_layers", "num_mtp_layers", minimum=0)
    if extra:
        doc.notes.append(
            f"num_nextn_predict_layers {extra} is not counted: multi-token prediction is left out,"
            " --mtp trains it"
        )
    return _latent(doc)
