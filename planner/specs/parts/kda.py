"""Kimi delta attention (Kimi Linear, arXiv 2510.26692): a delta rule with a decay per channel."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from planner.specs.parts.base import (
    Cached,
    Heads,
    Kept,
    Limit,
    MaybeWidth,
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
from planner.specs.parts.delta import CHUNK, chunked_delta_flop


class KimiDelta(Part):
    """A delta rule whose decay and output gate come through narrow projections."""

    type: Literal["kimi_delta"] = "kimi_delta"
    heads: int = Heads
    head_dim: int = Width
    rank: int | None = MaybeWidth  # of decay and gate; None: head_dim
    conv: int = Field(default=4, ge=1, le=1024)
    low_rank: bool = True  # False: decay and gate are projected at full width

    @property
    def inner(self) -> int:
        """Width of all heads."""
        return self.heads * self.head_dim

    @property
    def low(self) -> int:
        """Width of the narrow projections of decay and gate."""
        return self.rank or self.head_dim

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        h, inner = stream.hidden, self.inner
        yield Tensor("kda/qkv", 3 * h * inner)
        yield Tensor("kda/conv", 3 * inner * self.conv, matmul=False)
        yield Tensor("kda/down", 2 * h * self.low * self.low_rank, "replicated")
        yield Tensor("kda/up", 2 * (self.low if self.low_rank else h) * inner)
        yield Tensor("kda/step", h * self.heads)
        yield Tensor("kda/decay", inner + self.heads, matmul=False)
        yield replicated("kda/norm", self.head_dim)
        yield Tensor("kda/out", inner * h)

    def products(self, stream: Stream) -> Iterator[Product]:
        h, inner = stream.hidden, Pieces(self.inner, self.heads)
        yield Product("kda_qkv", h, Pieces(3 * self.inner, self.heads))
        if self.low_rank:
            yield Product("kda_down", h, Pieces(2 * self.low, 1), "none")
        read = self.low if self.low_rank else h
        yield Product("kda_up", read, inner, times=2, group="kda_up")
        yield Product("kda_step", h, Pieces(self.heads, self.heads))
        yield Product("kda_out", self.inner, Pieces(h, 1), "rows")

    def core(self) -> tuple[Scan, ...]:
        flop = chunked_delta_flop(self.heads, self.head_dim, self.head_dim)
        # queries, keys, values, decay and output; a step per head
        return (Scan("kda", flop, 5.0 * self.inner + self.heads, self.heads),)

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        inner = Pieces(self.inner, self.heads)
        return (
            convolved("kda/conv", Pieces(3 * self.inner, self.heads)),
            activated("kda/norm", Pieces(2 * self.inner, self.heads)),
            activated("kda/decay", inner),
            gated("kda/gate", inner),
        )

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        # as of the gated delta net, with a decay per channel in fp32 and two triangles per chunk
        inner, heads = self.inner, self.heads
        return (
            Kept("kda/in", Pieces(3 * inner, heads)),
            Kept("kda/low", Pieces(2 * self.low, 1)),
            Kept("kda/conv", Pieces(3 * inner, heads)),
            Kept("kda/norm", Pieces(2 * inner, heads)),
            Kept("kda/decay", Pieces(3 * inner, heads)),
            Kept("kda/chunk", Pieces(2 * heads * CHUNK, heads)),
            Kept("kda/core", Pieces(inner, heads)),
            Kept("kda/gate", Pieces(inner, heads)),
            Kept("kda/output", Pieces(inner, heads)),
        )

    def limits(self) -> tuple[Limit, ...]:
        return (Limit("heads of Kimi delta attention", self.heads),)

    def cached(self) -> Cached:
        return Cached(once=self.inner * (self.head_dim + 3 * self.conv), units=self.heads)
