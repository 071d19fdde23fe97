"""Forward seconds of the modules of a layer that are recomputed by themselves, or kept while the
rest is recomputed: GEMMs, operators bound by memory, collectives and their share of late launches
(specs.modules)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.estimate.communicate import Collective
from planner.estimate.layer.launches import of_experts
from planner.estimate.layer.operators import activation_s
from planner.estimate.layer.shape import LayerShape
from planner.estimate.machine import Machine
from planner.ledger import Array, Ledger
from planner.specs.columns import Columns
from planner.specs.layers import Mix
from planner.specs.modules import MODULES, RESULTS
from planner.specs.parts import Attention, CrossAttention, Latent, Mlp, Moe

_GEMMS = {
    "up_proj": ("q_up", "kv_up"),
    "mlp": ("mlp_in", "mlp_out"),
    "experts": ("router", "latent_in", "expert_in", "expert_out", "latent_out"),
    "shared": ("shared_in", "shared_out"),
    "qkv": ("qkv", "q", "kv", "q_kv_down", "kv_down", "q_up", "kv_up", "cross_q", "cross_kv"),
    "out": ("attention_out", "cross_out"),
    "mlp_in": ("mlp_in", "expert_in", "shared_in"),
}
_DIRECT = "q"  # queries of latent attention that has no low-rank ones: projected with the others
# kernels of a piece: two GEMMs, their norm and rotation; two GEMMs, activation and norm, or without
_UP_KERNELS, _MLP_KERNELS, _SHARED_KERNELS = 4.0, 4.0, 3.0


def pieces(
    shape: LayerShape,
    m: Machine,
    forward: Ledger,
    collectives: tuple[Collective, ...],
    law: Callable[[Array, Array], Array],
) -> Ledger:
    """Forward seconds of every piece of a mean layer.

    law: seconds of a stretch of GPU work, given its GPU seconds and the operators that the CPU
    issues.
    """
    mix = shape.mix
    latent = mix.mean_of(lambda part: float(isinstance(part, Latent)))
    mixers = latent + mix.mean_of(lambda part: float(isinstance(part, Attention | CrossAttention)))
    dense = mix.mean_of(lambda part: float(isinstance(part, Mlp)))
    moe = mix.mean_of(lambda part: float(isinstance(part, Moe)))
    blocks = mix.sums or 1.0
    norm = forward["memory_bound/norm"] / mix.norms if mix.norms else 0.0
    rotary = forward.get("memory_bound/rotary", 0.0) * (latent / mixers if mixers else 0.0)
    tensor = [x for x in collectives if x.component == "tensor_parallel"]
    block = sum((x.forward_s for x in tensor), start=np.zeros(1)) / blocks
    reduced = sum((x.forward_s for x in tensor if x.operation != "all_gather"), start=np.zeros(1))
    sent = sum(
        (x.forward_s for x in collectives if x.component == "expert_parallel"), start=np.zeros(1)
    )
    routed, shared = activation_s(shape, m)
    beside = mix.mean_of(lambda part: float(isinstance(part, Moe) and part.shared_ffn_hidden > 0))
    seconds: Ledger = {
        "core": forward["attention/core"],
        "up_proj": rotary + norm * latent,
        "norms": norm * (latent + moe),
        "moe_act": routed,
        "mlp": forward.get("memory_bound/activation", 0.0) + (norm + block) * dense,
        "experts": np.maximum(forward.get("memory_bound/experts", 0.0) - routed - shared, 0.0)
        + sent
        + block * moe,
        "shared": shared,
        "out": reduced / blocks * mixers,
    }
    for name, each in _gemms(mix, forward).items():
        seconds[name] = seconds.get(name, 0.0) + each
    operators: Ledger = {
        "core": mixers,
        "up_proj": _UP_KERNELS * latent,
        "norms": latent + moe,
        "moe_act": moe,
        "mlp": _MLP_KERNELS * dense,
        "experts": np.maximum(of_experts(shape, m) - moe, 0.0),
        "shared": _SHARED_KERNELS * beside,
    }
    return {
        name: law(each, operators[name]) if name in operators else each
        for name, each in seconds.items()
    }


def pieces_flop(mix: Mix, gemms: Ledger, core: Array) -> Ledger:
    """Forward FLOP of every piece that has any. gemms: of every GEMM of a mean layer, by name."""
    return {**_gemms(mix, gemms), "core": core}


def _gemms(mix: Mix, ledger: Ledger) -> Ledger:
    """Sum of a ledger by GEMM over the GEMMs of every module."""
    parts = [part for part, _ in mix.parts]
    direct = any(isinstance(part, Latent) and part.query_rank is None for part in parts)
    names = {**_GEMMS, "up_proj": _GEMMS["up_proj"] + (_DIRECT,) * direct}
    return {
        piece: sum((ledger.get(f"matmul/{name}", 0.0) for name in each), start=np.zeros(1))
        for piece, each in names.items()
    }


def repeated_alone(c: Columns, ledger: Ledger) -> Array:
    """Seconds or FLOP of the modules that each row recomputes by themselves; work shared by two is
    counted once."""
    spent = 0.0 * c.tp
    if not np.any(c.is_recompute("modules")):
        return spent
    for piece in dict.fromkeys(name for module in MODULES.values() for name in module.pieces):
        having = [name for name, module in MODULES.items() if piece in module.pieces]
        spent = spent + np.where(c.repeats_module(*having), ledger.get(piece, 0.0), 0.0)
    return spent


def spared(c: Columns, ledger: Ledger) -> Array:
    """Seconds or FLOP of a layer that is repeated that rows save by the results that they keep."""
    saved = 0.0 * c.tp
    if not np.any(c.is_recompute("keep")):
        return saved
    for name, piece in RESULTS.items():
        if piece is not None:
            saved = saved + np.where(c.keeps_result(name), ledger[piece], 0.0)
    return saved
