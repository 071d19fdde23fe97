"""Composition of a type of model, as deviations from a Llama-like decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from planner.inputs.huggingface import kinds as k
from planner.inputs.huggingface.document import Document
from planner.inputs.huggingface.layers import Blocks, Part
from planner.inputs.huggingface.source import Source

Flag = bool | str


@dataclass(frozen=True)
class Layer:
    """One layer as the hooks of a type see it."""

    place: int
    kind: str
    sparse: bool
    last: bool


Hook = Callable[[Source, "Family", Layer], list[Part]]


def nothing(s: Source, f: Family, layer: Layer) -> list[Part]:
    return []


@dataclass(frozen=True)
class Family:
    """Traits of a type; the defaults are Llama's."""

    mixers: Mapping[str, Hook]  # by kind of layer
    mlp: Hook
    moe: Hook
    kinds: k.Kinds = k.full
    sparse: k.Sparse = k.never
    beside_mixer: Hook = nothing  # parts in the block of the mixer
    beside_mlp: Hook = nothing  # parts in the block of the MLP
    has_mlp: bool = True  # beside the mixer of a layer
    blocks: Callable[[Source, Family, Layer], Blocks] | None = None  # of layers of another order
    order: Callable[[list[str]], list[str]] = list  # of kinds that are listed, as it is corrected
    layer_count: Callable[[Document], int] | None = None  # where no key states it

    gated: bool = True
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norm_bias: Flag = False
    norms: int = 1  # per block
    parallel: Flag = False
    parallel_norms: int = 1
    embedding_norm: bool = False
    final_norm: bool = True
    positions: Literal["rotary", "learned", "alibi", "none"] = "rotary"
    rows: int = 0  # rows of a learned table before the first position
    mask: Literal["causal", "full"] = "causal"
    bias_qkv: Flag = "attention_bias"
    bias_out: Flag = "attention_bias"
    bias_mlp: Flag = "mlp_bias"
    bias_head: Flag = False
    tied: bool = True  # where tie_word_embeddings says so
    bias_experts: bool = False
    activations: Mapping[str, str] = field(default_factory=dict)  # of only its class
    uneven_heads: bool = False  # the rest of hidden width / heads is dropped, not refused
    clamped: bool = False  # experts clamp what their activation reads
    qk_norm: Literal["none", "per_head", "full"] = "none"
    qk_norm_if: Flag = True
    gate: Literal["none", "per_head", "per_element"] = "none"
    gate_if: Flag = True
    sinks: bool = False
    shared_gate: bool = False
    router_bias: bool = False
    mamba_norms: bool = False
    mamba_norm_if: Flag = True
    dropout: bool = False  # by rates outside the keys that are named so
    joint: tuple[str, ...] = ()  # matrices that its class in transformers 5.23 keeps as one
    adapt: Callable[[Source, Family], Family] | None = None  # to what several keys say together
    whole: Callable[[Document], dict[str, Any]] | None = None  # the fields of a model of towers
    spellings: Mapping[str, str] = field(default_factory=dict)  # keys of earlier files, as of now
    like: str = ""  # the type whose class it has, where transformers has none of its own
    always: Mapping[str, object] = field(default_factory=dict)  # what files state and all have
