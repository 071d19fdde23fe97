"""Attention by heads: full, grouped, windowed, chunked; with sinks, norms, gates and biases."""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import model_validator

from planner.specs.parts.base import (
    Attended,
    Cached,
    Heads,
    Kept,
    Limit,
    Mask,
    MaybeWidth,
    Part,
    Pieces,
    Positions,
    Product,
    Stream,
    Streamed,
    Tensor,
    Width,
    gated,
    replicated,
)

QkNorm = Literal["none", "per_head", "full"]


class Attention(Part):
    """Multi-head attention with grouped keys and values."""

    type: Literal["attention"] = "attention"
    heads: int = Heads
    kv_heads: int = Heads
    head_dim: int = Width
    value_dim: int | None = MaybeWidth  # of a value head, where it is not head_dim
    mask: Mask = "causal"
    window: int | None = Positions  # sliding window in tokens
    chunk: int | None = Positions  # tokens attend inside blocks of this many (Llama 4)
    joined: int | None = Positions  # additional keys, from another tower
    keys: int | None = Positions  # tokens attended to, where they are not those that ask
    scores_biased: bool = False  # a learned bias of every score, which keeps the scores (T5)
    rotary: bool = True
    sinks: bool = False  # a learned logit per head that takes attention away (gpt-oss)
    qk_norm: QkNorm = "none"  # one weight per head dimension, or per projected width
    output_gate: Literal["none", "per_head", "per_element"] = (
        "none"  # of queries' width: Qwen3-Next
    )
    bias_qkv: bool = False
    bias_out: bool = False
    own_kv: bool = True  # False: keys and values of an earlier layer (Gemma 3n)
    values_are_keys: bool = False  # one projection for both (Gemma 4)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}")
        if self.values_are_keys and self.values != self.head_dim:
            raise ValueError("values_are_keys: value_dim must equal head_dim; leave it out")
        return self

    @property
    def values(self) -> int:
        """Width of a value head."""
        return self.value_dim or self.head_dim

    @property
    def key_value_widths(self) -> tuple[int, ...]:
        """Columns of the projections of keys and values that this layer has."""
        if not self.own_kv:
            return ()
        keys = self.kv_heads * self.head_dim
        return (keys,) if self.values_are_keys else (keys, self.kv_heads * self.values)

    @property
    def gate_width(self) -> int:
        """Columns of the projection of the output's gate."""
        each = {"none": 0, "per_head": 1, "per_element": self.values}[self.output_gate]
        return self.heads * each

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        h, q, kv = stream.hidden, self.heads * self.head_dim, self.key_value_widths
        widths, units = (q + self.gate_width, *kv), (self.heads, self.kv_heads, self.kv_heads)
        pieces = tuple(Pieces(h * width, n) for width, n in zip(widths, units, strict=False))
        sizes = tuple(piece.elements for piece in pieces)
        yield Tensor("attention/qkv", sum(sizes), pieces=pieces, sizes=sizes, join="qkv")
        if self.bias_qkv:
            yield Tensor("attention/qkv_bias", sum(widths), matmul=False, sizes=widths, join="qkv")
        yield Tensor("attention/out", self.heads * self.values * h)
        if self.qk_norm == "per_head":
            yield replicated("attention/qk_norm", stream.norm(self.head_dim) * (1 + self.own_kv))
        elif self.qk_norm == "full":
            keys = self.kv_heads * self.head_dim * self.own_kv
            yield replicated("attention/qk_norm", stream.norm(q + keys))
        yield Tensor("attention/sinks", self.heads * self.sinks, matmul=False)
        yield replicated("attention/out_bias", h * self.bias_out)

    def products(self, stream: Stream) -> Iterator[Product]:
        q = self.heads * self.head_dim + self.gate_width
        yield Product("q", stream.hidden, Pieces(q, self.heads), group="qkv", join="qkv")
        widths = self.key_value_widths
        if len(set(widths)) == 1:
            pieces = Pieces(widths[0], self.kv_heads)
            yield Product("kv", stream.hidden, pieces, times=len(widths), group="qkv", join="qkv")
        else:
            for name, width in zip(("k", "v"), widths, strict=False):
                pieces = Pieces(width, self.kv_heads)
                yield Product(name, stream.hidden, pieces, group="qkv", join="qkv")
        out = Pieces(stream.hidden, 1)
        yield Product("attention_out", self.heads * self.values, out, "rows")

    def core(self) -> tuple[Attended, ...]:
        return (
            Attended(
                self.heads,
                self.head_dim,
                self.values,
                self.kv_heads,
                own_kv=self.own_kv,
                rotary=self.rotary,
                mask=self.mask,
                window=self.window,
                chunk=self.chunk,
                keys=self.keys,
                biased=self.scores_biased,
                sinks=self.sinks,
            ),
        )

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        if not self.gate_width:
            return ()
        return (gated("attention/gate", Pieces(self.heads * self.values, self.heads)),)

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        if not self.gate_width:
            return ()
        # the gate, and its product with the core's output, which is kept as well
        width = self.gate_width + self.heads * self.values
        return (Kept("attention/gate", Pieces(width, self.heads)),)

    def limits(self) -> tuple[Limit, ...]:
        return Limit("heads", self.heads), Limit("heads of keys and values", self.kv_heads, True)

    def cached(self) -> Cached:
        short = self.window or self.chunk
        return Cached(sum(self.key_value_widths), short, units=self.kv_heads)
