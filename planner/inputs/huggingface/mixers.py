"""Token mixers and MLPs: parts of a layer from the keys of a config.json."""

from __future__ import annotations

import math
from typing import Any

from planner.inputs.huggingface.family import Family, Layer
from planner.inputs.huggingface.kinds import CHUNKED, FULL, SLIDING
from planner.inputs.huggingface.layers import Part
from planner.inputs.huggingface.source import (
    CHOSEN,
    EXPERT_FFN,
    EXPERTS,
    GROUPS,
    SHARED,
    SHARED_FFN,
    Source,
)

_STEP_RANK = 16  # hidden width over the rank of Mamba's step, where it is "auto"


def extra(elements: int) -> list[Part]:
    """Trained tensors outside all GEMMs; an empty list for 0 elements."""
    return [{"type": "extra", "elements": elements}] if elements else []


def projection(inputs: int, outputs: int, bias: bool = False) -> list[Part]:
    """One more GEMM on the way."""
    return [{"type": "projection", "inputs": inputs, "outputs": outputs, "bias": bias}]


def hyper(lanes: int, weights: str) -> list[Part]:
    """Weights of the lanes of a residual stream (hyper-connections); none for a single lane."""
    return [{"type": "hyper", "name": f"hyper-{weights}", "lanes": lanes, "weights": weights}]


def attention(s: Source, f: Family, layer: Layer, **changes: Any) -> list[Part]:
    """Attention by heads, all keys; `changes` are fields that a kind of layer has of its own."""
    qk = f.qk_norm if s.on(f.qk_norm_if) else "none"
    if not f.uneven_heads:
        s.heads_divide()
    return [
        {
            "type": "attention",
            "name": "attention",
            "heads": s.heads,
            "kv_heads": s.kv_heads,
            "head_dim": s.head_dim,
            "qk_norm": qk,
            "bias_qkv": s.on(f.bias_qkv),
            "bias_out": s.on(f.bias_out),
            "rotary": f.positions == "rotary",
            "sinks": f.sinks,
            "output_gate": f.gate if s.on(f.gate_if) else "none",
            "mask": f.mask,
            **changes,
        }
    ]


def window(s: Source, f: Family, layer: Layer, **changes: Any) -> list[Part]:
    """Attention with a sliding window, which the file states."""
    if not s.window:
        raise s.error("sliding_window", "must be the width of the layers that slide")
    return attention(s, f, layer, **{"window": s.window, "name": "window", **changes})


def chunked(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Attention inside blocks of tokens (Llama 4)."""
    return attention(
        s, f, layer, chunk=s.doc.optional_count("attention_chunk_size"), name="chunked"
    )


def unrotated(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Full attention without rotary positions beside layers that have them."""
    return attention(s, f, layer, rotary=False)


def latent(s: Source, f: Family, layer: Layer, index: bool = False, **changes: Any) -> list[Part]:
    """Multi-head latent attention, with or without a sparse index."""
    shape: Part = {
        "type": "latent",
        "name": "sparse" if index else "latent",
        "heads": s.heads,
        "query_rank": s.maybe("q_lora_rank"),
        "kv_rank": s.doc.count("kv_lora_rank"),
        "nope_head_dim": s.doc.count("qk_nope_head_dim"),
        "rope_head_dim": s.doc.count("qk_rope_head_dim"),
        "value_head_dim": s.count(("v_head_dim",), default=s.hidden // s.heads),
        "bias_out": s.on(f.bias_out),
        "bias_down": s.on(f.bias_qkv),
        **changes,
    }
    s.doc.ignore("head_dim", "qk_head_dim")
    if s.kv_heads != s.heads:
        why = f"latent attention has a key per head, {s.heads} in all"
        raise s.error("num_key_value_heads", why)
    if index:
        shape["index"] = {
            "heads": s.doc.count("index_n_heads"),
            "head_dim": s.doc.count("index_head_dim"),
            "top_k": s.doc.count("index_topk"),
        }
    return [shape]


def sparse_latent(s: Source, f: Family, layer: Layer) -> list[Part]:
    return latent(s, f, layer, index=True)


def mamba(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Mamba, from the keys of Jamba or of Mamba itself."""
    d = s.doc
    grown = d.count(d.first(("mamba_expand", "expand")), default=2) * s.hidden
    rank = d.first(("mamba_dt_rank", "time_step_rank"))
    stated = d.get(rank)
    auto = stated in (None, "auto")
    return [
        {
            "type": "mamba",
            "inner": grown,
            "state": d.count(d.first(("mamba_d_state", "state_size"))),
            "dt_rank": math.ceil(s.hidden / _STEP_RANK) if auto else d.count(rank),
            "conv": d.count(d.first(("mamba_d_conv", "conv_kernel"))),
            "conv_bias": s.flag(d.first(("mamba_conv_bias", "use_conv_bias"))),
            "bias": s.flag(d.first(("mamba_proj_bias", "use_bias"))),
            "norms": f.mamba_norms,
        }
    ]


def mamba2(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Mamba-2, by the keys of Bamba, Nemotron-H, Zamba 2 or Mamba-2 itself."""
    d = s.doc
    d.ignore("time_step_rank")  # steps have no rank here
    heads = d.count(d.first(("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads")))
    grown = d.count(d.first(("mamba_expand", "expand")), default=2) * s.hidden
    inner = s.maybe("mamba_d_ssm") or grown
    width = d.first(("mamba_head_dim", "mamba_d_head", "mamba_headdim", "head_dim"))
    stated = d.get(width)
    auto = stated in (None, "auto") or width == "mamba_headdim"
    return [
        {
            "type": "mamba2",
            "heads": heads,
            "head_dim": inner // heads if auto else d.count(width),
            "state": d.count(d.first(("ssm_state_size", "mamba_d_state", "state_size"))),
            "groups": d.count(d.first(("mamba_n_groups", "mamba_ngroups", "n_groups"))),
            "conv": d.count(d.first(("mamba_d_conv", "conv_kernel"))),
            "conv_bias": s.flag(d.first(("mamba_conv_bias", "use_conv_bias"))),
            "bias": s.flag(d.first(("use_bias", "mamba_proj_bias", "add_bias_linear"))),
            "norm": s.on(f.mamba_norm_if),
            "chunk": d.count(d.first(("mamba_chunk_size", "chunk_size")), default=256),
        }
    ]


def gated_delta(s: Source, f: Family, layer: Layer) -> list[Part]:
    """A gated delta net by the keys of Qwen3-Next."""
    d = s.doc
    keys = s.count(("linear_num_key_heads",), default=s.heads)
    key_dim = s.maybe("linear_key_head_dim") or int(0.75 * s.hidden / keys)
    return [
        {
            "type": "gated_delta",
            "name": "delta",
            "key_heads": keys,
            "value_heads": s.count(("linear_num_value_heads",), default=s.heads),
            "key_dim": key_dim,
            "value_dim": s.maybe("linear_value_head_dim") or 2 * key_dim,
            "conv": d.count("linear_conv_kernel_dim"),
        }
    ]


def kimi_delta(s: Source, f: Family, layer: Layer) -> list[Part]:
    """Kimi delta attention; linear_attn_config of the first releases has its sizes."""
    table = s.doc.part("linear_attn_config")
    return [
        {
            "type": "kimi_delta",
            "name": "delta",
            "heads": table.optional_count("num_heads") or s.doc.count("linear_num_heads"),
            "head_dim": table.optional_count("head_dim") or s.doc.count("linear_head_dim"),
            "conv": table.optional_count("short_conv_kernel_size")
            or s.doc.count("linear_conv_kernel_dim"),
        }
    ]


def lightning(s: Source, f: Family, layer: Layer) -> list[Part]:
    return [
        {
            "type": "lightning",
            "heads": s.heads,
            "head_dim": s.head_dim,
            "chunk": s.doc.count("block_size"),
        }
    ]


def short_conv(s: Source, f: Family, layer: Layer) -> list[Part]:
    return [
        {
            "type": "short_conv",
            "name": "conv",
            "conv": s.doc.count("conv_L_cache"),
            "bias": s.flag("conv_bias"),
        }
    ]


def rg_lru(s: Source, f: Family, layer: Layer) -> list[Part]:
    return [
        {
            "type": "rg_lru",
            "inner": s.count(("lru_width",), default=s.hidden),
            "blocks": s.heads,
            "conv": s.doc.count("conv1d_width"),
        }
    ]


def rwkv(s: Source, f: Family, layer: Layer) -> list[Part]:
    return [{"type": "rwkv", "inner": s.count(("attention_hidden_size",), default=s.hidden)}]


def mlstm(s: Source, f: Family, layer: Layer) -> list[Part]:
    """mLSTM: widths of keys and values are shares of the hidden width."""
    s.doc.only("embedding_dim", s.hidden, "embeddings of another width are not expressed")
    s.doc.only("num_blocks", s.layers, "contradicts num_hidden_layers")
    widths = [int(s.hidden * s.factor(f"{key}_dim_factor")) for key in ("qk", "v")]
    return [
        {
            "type": "mlstm",
            "heads": s.heads,
            "key_dim": s.even(widths[0], s.heads),
            "value_dim": s.even(widths[1], s.heads),
            "chunk": s.doc.count("chunk_size"),
        }
    ]


# --- MLPs ---


def mlp(s: Source, f: Family, layer: Layer, **changes: Any) -> list[Part]:
    return [
        {
            "type": "mlp",
            **({} if "ffn_hidden" in changes else {"ffn_hidden": s.ffn}),
            "gated": f.gated,
            "activation": s.activation(f.activations),
            "bias": s.on(f.bias_mlp),
            **changes,
        }
    ]


def shared_width(s: Source, width: int) -> int:
    """Width of all shared experts: stated, or by their number."""
    stated = s.doc.first(SHARED_FFN)
    if stated in s.doc.data:
        each = s.doc.optional_count(stated, minimum=0)
        number = s.doc.first(SHARED)
        if each is not None and number in s.doc.data:
            return each * s.count(SHARED, minimum=0, default=0)
        if each is not None:
            return each
    if s.doc.first(SHARED) not in s.doc.data:
        return 0
    return width * s.count(SHARED, minimum=0, default=0)


def moe(s: Source, f: Family, layer: Layer, **changes: Any) -> list[Part]:
    """Routed and shared experts."""
    width = s.count(EXPERT_FFN)
    number = s.count(EXPERTS, minimum=2)
    s.doc.only("num_experts", number, f"contradicts {s.doc.first(EXPERTS)}")
    groups = s.maybe(*GROUPS)
    reached = s.doc.optional_count("topk_group")
    return [
        {
            "type": "moe",
            "experts": number,
            "experts_per_token": s.count(CHOSEN),
            "ffn_hidden": width,
            "shared_ffn_hidden": shared_width(s, width),
            "shared_gate": f.shared_gate,
            "group_limit": reached if groups and groups > 1 else None,
            "router_bias": f.router_bias,
            "gated": f.gated,
            "activation": s.activation(f.activations),
            "clamped": f.clamped,
            "bias": f.bias_experts,
            **changes,
        }
    ]


LLAMA = Family(mixers={FULL: attention, SLIDING: window, CHUNKED: chunked}, mlp=mlp, moe=moe)
