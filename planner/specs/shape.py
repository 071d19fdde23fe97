"""The layers of a model as they are stated: sizes, parts, and the stack or the flat fields."""

from typing import Literal

from pydantic import Field

from planner.specs.base import Names, Spec
from planner.specs.parts import AnyPart, LatentAttention, Routing
from planner.specs.parts.base import MAX_POSITIONS, MaybeWidth, Width
from planner.specs.parts.mlp import Activation


class Repeat(Spec):
    """Layers in their order, repeated."""

    layers: Names = Field(min_length=1)
    times: int | None = Field(
        default=None, ge=1, le=100_000
    )  # None: until the model has all its layers; the last round may be cut short
    tower: str = Field(default="", max_length=100)  # that they are of; "": of the sequence


class Tower(Spec):
    """Layers whose samples have a number of tokens of their own."""

    name: str = Field(min_length=1, max_length=100)
    tokens: int = Field(ge=1, le=MAX_POSITIONS)  # per sample
    with_sequence: bool = False  # and those of the sequence, side by side
    hidden: int | None = MaybeWidth  # None: that of the model

    def length(self, seq_len: int) -> int:
        """Tokens per sample, beside a sequence of so many."""
        return self.tokens + seq_len * self.with_sequence


class Experts(Routing):
    """The mixture-of-experts part of a model."""

    dense_layers: int = Field(default=0, ge=0, le=100_000)  # the first layers with a dense MLP
    every: int = Field(
        default=1, ge=1, le=100_000
    )  # 1: each later layer has experts; 2: every second one


class Shape(Spec):
    """What the layers of a model are made of, flat or as a stack of parts."""

    layers: int = Field(ge=1, le=100_000)
    hidden: int = Width
    positions: Literal["learned", "rotary", "alibi", "none"] = "rotary"

    # needed without a stack; in a stack what its layers call attention and mlp
    heads: int = Field(default=0, ge=0, le=100_000)
    kv_heads: int = Field(default=0, ge=0, le=100_000)
    head_dim: int = Field(default=0, ge=0, le=10_000_000)
    ffn_hidden: int = Field(
        default=0, ge=0, le=10_000_000
    )  # width of the dense MLP (of the dense layers, if there are experts)
    mlp: Literal["plain", "gated"] = "gated"
    activation: Activation = "silu"
    norms_per_layer: int = Field(default=2, ge=1, le=4)  # 1: shared by a parallel block; 4: Gemma 2
    qk_norm: Literal["none", "per_head", "full"] = (
        "none"  # one weight per head dimension, or per projected width
    )
    parallel_block: bool = False  # attention and MLP read the same input
    bias_qkv: bool = False
    bias_attention_out: bool = False
    bias_mlp: bool = False
    attention_window: int | None = Field(
        default=None, ge=1, le=MAX_POSITIONS
    )  # sliding window in tokens
    window_every: int = Field(
        default=1, ge=1, le=100_000
    )  # 2: every second layer is windowed (Gemma 2)

    latent: LatentAttention | None = None
    moe: Experts | None = None
    parts: tuple[AnyPart, ...] = Field(default=(), strict=False)  # of a stack, by name
    stack: tuple[Repeat, ...] = Field(default=(), strict=False)  # the layers, in order
    towers: tuple[Tower, ...] = Field(default=(), strict=False)  # beside that of the sequence
    head_tower: str = ""  # whose tokens the head reads
    norms_per_block: int = Field(default=1, ge=0, le=4)  # in a stack; 2: before and after each
    mtp: int = Field(default=0, ge=0, le=100)  # modules of multi-token prediction
    mtp_layers: Names = ()  # of one module, in the words of the stack; none: one as the last layer
