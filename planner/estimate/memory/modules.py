"""Activations by module: what a layer no longer keeps if some of its modules are recomputed, what
it keeps beside its input if the rest is recomputed, and what is offloaded to the host."""

from __future__ import annotations

import functools

import numpy as np

from planner.ledger import Array, Ledger, total
from planner.specs.columns import Columns
from planner.specs.layers import Kind
from planner.specs.parts import Attention, CrossAttention, Latent, Mlp, Moe, Part, Scan
from planner.specs.parts.mlp import ChannelMix
from planner.specs.plan import Plan

# leaves of a layer's ledger that a module's repetition frees (Megatron-Core: transformer_layer.py,
# multi_latent_attention.py, moe/experts.py, moe/moe_layer.py). layernorm, moe_act and mla_up_proj
# discard their own output, the others keep their input alone. A norm that a GEMM computes itself is
# not apart (IdentityOp), so that layernorm is that of latent attention and of experts; for the same
# reason a dense MLP's own norm is repeated with it
_FREED: dict[str, tuple[str, ...]] = {
    "core_attn": ("attention/core",),
    "mla_up_proj": ("latent/qkv", "latent/normed"),
    "layernorm": ("latent/input", "moe/input"),
    "moe_act": ("moe/activated",),
    "mlp": ("mlp/input", "mlp/hidden"),
    "moe": (
        "moe/router",
        "moe/routed",
        "moe/combined",
        "moe/hidden",
        "moe/activated",
        "moe/shared",
    ),
    "shared_experts": ("moe/shared",),
}
# what autograd saves inside a module, its input first, by the names of Megatron-Core's
# offload_modules (on_save_for_backward of pipeline_parallel/fine_grained_activation_offload.py)
_SAVED: dict[str, tuple[str, ...]] = {
    "qkv_linear": ("attention/input", "latent/input", "latent/low", "latent/normed"),
    "core_attn": ("attention/qkv", "latent/qkv", "attention/core"),
    "attn_proj": ("attention/output",),
    "expert_fc1": ("moe/routed",),
    "moe_act": ("moe/hidden",),
}
_NORMS = ("attn_norm", "mlp_norm")  # before what mixes tokens, before what does not
LAYER_INPUT = "decoder_layer_input"


def left(c: Columns, ledger: Ledger) -> Ledger:
    """Activations of a layer that stay if only modules are recomputed."""
    out = dict(ledger)
    if np.any(c.is_recompute("modules")):
        for name in ledger:
            modules = [module for module, leaves in _FREED.items() if name in leaves]
            if modules:
                out[name] = np.where(c.repeats_module(*modules), 0.0, ledger[name])
    return out


def largest_freed(c: Columns, ledger: Ledger) -> Array:
    """Bytes of the largest module of a layer that is recomputed by itself: backward recomputes one
    at a time."""
    if not np.any(c.is_recompute("modules")):
        return 0.0 * c.tp
    sizes = (
        np.where(
            c.repeats_module(module), total({n: ledger[n] for n in leaves if n in ledger}), 0.0
        )
        for module, leaves in _FREED.items()
    )
    return functools.reduce(np.maximum, sizes, 0.0 * c.tp)


def results(
    plan: Plan, c: Columns, kind: Kind, tokens: tuple[Array, Array], routed: Array
) -> dict[str, Array]:
    """Bytes of the results of a layer that rows can keep of it, by name. The last GEMM's is read by
    no backward and not kept. tokens: whole, and as sequence parallelism leaves them; routed: copies
    for experts."""
    e, (whole, local) = plan.training.element_bytes, tokens
    out = {"qkv_proj": 0.0 * whole, "context": 0.0 * whole, "out_proj": 0.0 * whole}
    out["mlpwi"] = 0.0 * whole
    for part in kind.parts:
        if isinstance(part, Attention | CrossAttention):
            width = (part.heads + 2 * np.maximum(part.kv_heads, c.tp)) * part.head_dim
            out["qkv_proj"] = out["qkv_proj"] + e * whole * width / c.tp
            values = part.heads * part.head_dim
        elif isinstance(part, Latent):
            low = (part.query_rank or 0) + part.kv_rank + part.rope_head_dim
            wide = part.heads * (part.query_width + part.nope_head_dim + part.value_head_dim)
            out["qkv_proj"] = out["qkv_proj"] + e * (local * low + whole * wide / c.tp)
            values = part.heads * part.value_head_dim
        elif isinstance(part, Mlp):
            out["mlpwi"] = out["mlpwi"] + e * whole * part.inputs * part.ffn_hidden / c.tp
            continue
        elif isinstance(part, Moe):
            each = routed * part.ffn_hidden + whole * part.shared_ffn_hidden
            out["mlpwi"] = out["mlpwi"] + e * each * part.inputs / c.tp
            continue
        else:
            continue
        out["context"] = out["context"] + e * whole * values / c.tp
        out["out_proj"] = out["out_proj"] + e * local * float(plan.model.hidden)
    return out


def kept_results(c: Columns, of: dict[str, Array]) -> dict[str, Array]:
    """The results that every row keeps."""
    return {name: np.where(c.keeps_result(name), each, 0.0) for name, each in of.items()}


def leaving(plan: Plan, kind: Kind, ledger: Ledger) -> Array:
    """Activations of a layer without recomputation that are offloaded to the host, by module."""
    modules = plan.training.offload_modules
    if not modules:
        return total(ledger)
    names = {leaf for module in modules for leaf in _SAVED.get(module, ())}
    mixing = sum(part.mixes for part in kind.parts) / max(len(kind.parts), 1)
    shares = dict(zip(_NORMS, (mixing, 1 - mixing), strict=True))
    norms = sum(share for name, share in shares.items() if name in modules)
    return total({n: leaf for n, leaf in ledger.items() if n in names}) + norms * ledger["norm"]


def leaving_of_repeated(plan: Plan, entering: Array, kept: dict[str, Array]) -> Array:
    """Activations of a recomputed layer that are offloaded to the host: its input, and results that
    it keeps."""
    modules = plan.training.offload_modules
    every = {LAYER_INPUT: entering, **kept}
    return sum(
        (each for name, each in every.items() if not modules or name in modules),
        start=0.0 * entering,
    )


def selected(part: Part) -> float:
    """Widths of the products of a part that torchtitan's rule keeps, and of its core's output."""
    if isinstance(part, Attention | CrossAttention):
        return float((2 * part.heads + part.kv_heads) * part.head_dim)
    if isinstance(part, Latent):
        return float(2 * part.heads * part.value_head_dim)
    if isinstance(part, Mlp | ChannelMix):
        return float(part.ffn_hidden)
    if isinstance(part, Moe):
        return float(part.experts_per_token * part.ffn_hidden + part.shared_ffn_hidden)
    return sum(float(core.read_elements) / 2 for core in part.core() if isinstance(core, Scan))
