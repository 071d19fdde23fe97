"""Activations by module: bytes freed by recomputing single modules, results kept while the rest is
recomputed, and bytes offloaded to the host."""

from __future__ import annotations

import functools

import numpy as np

from planner.estimate import mechanisms
from planner.ledger import Array, Ledger, total
from planner.specs.columns import Columns
from planner.specs.layers import Kind
from planner.specs.modules import MODULES
from planner.specs.parts import Attention, CrossAttention, Latent, Mlp, Moe, Part, Scan
from planner.specs.parts.mlp import ChannelMix
from planner.specs.plan import Plan

_LAYER_INPUT = "decoder_layer_input"


def left(c: Columns, ledger: Ledger) -> Ledger:
    """Activations of a layer that stay if only modules are recomputed."""
    out = dict(ledger)
    if np.any(c.is_recompute("modules")):
        for name in ledger:
            modules = [module for module, row in MODULES.items() if name in row.freed]
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
            c.repeats_module(name), total({n: ledger[n] for n in row.freed if n in ledger}), 0.0
        )
        for name, row in MODULES.items()
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


def kept_results(c: Columns, results: dict[str, Array]) -> dict[str, Array]:
    """The results that every row keeps."""
    return {name: np.where(c.keeps_result(name), each, 0.0) for name, each in results.items()}


def leaving(plan: Plan, kind: Kind, ledger: Ledger) -> Array:
    """Activations of a layer without recomputation that go to host memory."""
    share = mechanisms.offloaded(plan)
    if share is None:
        return total(ledger)
    mixing = sum(part.mixes for part in kind.parts) / max(len(kind.parts), 1)
    return total({name: share(name, mixing) * leaf for name, leaf in ledger.items()})


def leaving_of_repeated(plan: Plan, entering: Array, kept: dict[str, Array]) -> Array:
    """Activations of a recomputed layer that are offloaded to the host: its input, and results that
    it keeps."""
    share = mechanisms.offloaded(plan)
    every = {_LAYER_INPUT: entering, **kept}
    leaving = (leaf if share is None else share(name, 0.0) * leaf for name, leaf in every.items())
    return sum(leaving, start=0.0 * entering)


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
