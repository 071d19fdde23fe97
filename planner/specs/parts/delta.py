"""Gated delta net (arXiv 2412.06464), as in Qwen3-Next and OLMo Hybrid."""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from planner.specs.parts.base import (
    Cached,
    Heads,
    Kept,
    Limit,
    Part,
    Pieces,
    Product,
    Scan,
    Stream,
    Streamed,
    Tensor,
    Width,
    activated,
    convolved,
    gated,
    replicated,
)

CHUNK = 64  # tokens of a chunk of the kernels (flash-linear-attention)


def chunked_delta_flop(heads: int, key: int, value: int) -> float:
    """FLOP per token of the chunked delta rule, by heads of the values: inside a chunk the products
    of keys with keys and with queries, the inverse of its triangle applied to keys and values, and
    the scores to the values; with the state one product each of the corrected keys, the queries and
    the update (arXiv 2412.06464 section 3.3)."""
    inside = CHUNK * (2 * key + (key + value) + value)
    return 2.0 * heads * (inside + 3 * key * value)


class GatedDelta(Part):
    """A gated delta net: a state of key x value width per head, with one decay per head."""

    type: Literal["gated_delta"] = "gated_delta"
    key_heads: int = Heads
    value_heads: int = Heads
    key_dim: int = Width
    value_dim: int = Width
    conv: int = Field(default=4, ge=1, le=1024)
    conv_bias: bool = False

    @model_validator(mode="after")
    def _grouped(self) -> Self:
        if self.value_heads % self.key_heads:
            raise ValueError(
                f"value_heads {self.value_heads} must be a multiple of key_heads {self.key_heads}"
            )
        return self

    @property
    def keys(self) -> int:
        """Width of queries, and of keys."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Width of values, and of the output's gate."""
        return self.value_heads * self.value_dim

    @property
    def headed(self) -> int:
        """Columns by heads of the values: values, gate, decay and step."""
        return 2 * self.values + 2 * self.value_heads

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        h, keys = stream.hidden, 2 * self.keys
        pieces = Pieces(h * keys, self.key_heads), Pieces(h * self.headed, self.value_heads)
        yield Tensor("delta/in", h * (keys + self.headed), pieces=pieces)
        convolved = keys + self.values
        yield Tensor("delta/conv", convolved * (self.conv + self.conv_bias), matmul=False)
        yield Tensor("delta/decay", 2 * self.value_heads, matmul=False)
        yield replicated("delta/norm", self.value_dim)
        yield Tensor("delta/out", self.values * h)

    def products(self, stream: Stream) -> Iterator[Product]:
        h = stream.hidden
        yield Product("delta_in", h, Pieces(2 * self.keys, self.key_heads), group="delta_in")
        yield Product("delta_in", h, Pieces(self.headed, self.value_heads), group="delta_in")
        yield Product("delta_out", self.values, Pieces(h, 1), "rows")

    def core(self) -> tuple[Scan, ...]:
        flop = chunked_delta_flop(self.value_heads, self.key_dim, self.value_dim)
        moved = 2.0 * self.keys + 2.0 * self.values + 2.0 * self.value_heads
        return (Scan("gated_delta", flop, moved, self.value_heads),)

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        keys, values = Pieces(2 * self.keys, self.key_heads), Pieces(self.values, self.value_heads)
        return (
            convolved("delta/conv", Pieces(2 * self.keys + self.values, self.key_heads)),
            activated("delta/norm", keys),
            gated("delta/gate", values),
        )

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        # of flash-linear-attention: what was projected, convolved and normed, the inverse of each
        # chunk's triangle, the rule's output, and what is projected out
        keys, values = Pieces(2 * self.keys, self.key_heads), Pieces(self.values, self.value_heads)
        return (
            Kept("delta/in", keys),
            Kept("delta/in_values", Pieces(self.headed, self.value_heads)),
            Kept("delta/conv", keys),
            Kept("delta/conv_values", values),
            Kept("delta/norm", keys),
            Kept("delta/chunk", Pieces(self.value_heads * CHUNK, self.value_heads)),
            Kept("delta/core", values),
            Kept("delta/output", values),
        )

    def limits(self) -> tuple[Limit, ...]:
        return (
            Limit("value heads of the delta rule", self.value_heads),
            Limit("key heads of the delta rule", self.key_heads, True),
        )

    def cached(self) -> Cached:
        state = self.value_heads * self.key_dim * self.value_dim
        state += (2 * self.keys + self.values) * self.conv
        return Cached(once=state, units=self.value_heads)
