"""Modules of a layer that are recomputed by themselves, and results that it keeps while the rest is
recomputed: a row each, for time, memory and names."""

from __future__ import annotations

from typing import NamedTuple


class Module(NamedTuple):
    """A module that is recomputed by itself.

    pieces: of the forward time of a layer (estimate.layer.again), what is repeated.
    freed: leaves of a layer's activations (estimate.memory.activations) that it no longer keeps.
    """

    pieces: tuple[str, ...]
    freed: tuple[str, ...]


_OF_EXPERTS = ("router", "routed", "combined", "hidden", "activated", "shared")
# by Megatron-LM's names (--recompute-modules; megatron/core/transformer/transformer_config.py).
# layernorm, moe_act and mla_up_proj discard their own output, the others keep only their input
# (transformer_layer.py, multi_latent_attention.py, moe/experts.py, moe/moe_layer.py). A norm that a
# GEMM computes itself is not apart (IdentityOp), so that layernorm means the norms of latent
# attention and of experts; for the same reason a dense MLP's own norm is repeated with it
MODULES: dict[str, Module] = {
    "core_attn": Module(("core",), ("attention/core",)),
    "mla_up_proj": Module(("up_proj",), ("latent/qkv", "latent/normed")),
    "layernorm": Module(("norms",), ("latent/input", "moe/input")),
    "moe_act": Module(("moe_act",), ("moe/activated",)),
    "mlp": Module(("mlp",), ("mlp/input", "mlp/hidden")),
    "moe": Module(("experts", "moe_act", "shared"), tuple(f"moe/{leaf}" for leaf in _OF_EXPERTS)),
    "shared_experts": Module(("shared",), ("moe/shared",)),
}
# results by MaxText's names, with the piece that need not be repeated where they are kept. The last
# GEMM's result is read by no backward, so that it is neither kept (jax.checkpoint saves what is
# read) nor repeated
RESULTS: dict[str, str | None] = {
    "qkv_proj": "qkv",
    "context": "core",
    "out_proj": "out",
    "mlpwi": "mlp_in",
    "mlpwo": None,
}
