"""Traits that several model types share, as deviations from a Llama-like decoder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.inputs.huggingface import kinds as k
from planner.inputs.huggingface import mixers as m
from planner.inputs.huggingface.family import Family, Hook
from planner.inputs.huggingface.kinds import FULL, LINEAR


def mixers(**changed: Hook) -> dict[str, Hook]:
    return {**m.LLAMA.mixers, **changed}


def llama(**traits: Any) -> Family:
    return replace(m.LLAMA, **traits)


NO_BIAS: dict[str, Any] = {"bias_qkv": False, "bias_out": False, "bias_mlp": False}
PLAIN: dict[str, Any] = {
    "gated": False,
    "norm": "layernorm",
    "norm_bias": True,
    "bias_qkv": True,
    "bias_out": True,
    "bias_mlp": True,
}
SANDWICH: dict[str, Any] = {"norms": 2}
LATENT: dict[str, Any] = {"mixers": mixers(**{FULL: m.latent}), "bias_mlp": False}
DSA: dict[str, Any] = {
    "mixers": mixers(**{FULL: m.latent, "indexed_attention": m.sparse_latent}),
    "kinds": k.same("indexed_attention"),
    "sparse": k.dense_first(default=3, freq="moe_layer_freq"),
}
DELTA: dict[str, Any] = {
    "kinds": k.every("full_attention_interval", LINEAR),
    "mixers": mixers(**{LINEAR: m.gated_delta}),
    "qk_norm": "per_head",
    "gate": "per_element",
    "shared_gate": True,
}
GEMMA: dict[str, Any] = {"bias_mlp": False, **SANDWICH}
MAMBA: dict[str, Any] = {
    "kinds": k.same(LINEAR),
    "has_mlp": False,
    "positions": "none",
    "always": {"rms_norm": True, "ssm_cfg": {}},
}

DEEPSEEK: dict[str, Any] = {
    **LATENT,
    "sparse": k.dense_first(freq="moe_layer_freq"),
    "always": {"topk_method": "noaux_tc"},
}
GPT_KEYS = {
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_embed": "hidden_size",
}
QKV: dict[str, Any] = {"joint": ("qkv",)}
