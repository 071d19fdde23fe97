"""Linear attention with a fixed decay per head: lightning attention (arXiv 2405.17381), as in
MiniMax-01."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

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
    gated,
    replicated,
)


class Lightning(Part):
    """Queries, keys and values of all heads; a norm and a gate on the output."""

    type: Literal["lightning"] = "lightning"
    heads: int = Heads
    head_dim: int = Width
    gate: bool = True  # a projection as wide as the output
    norm: bool = True
    qk_norm: bool = False  # per head
    bias_qkv: bool = False
    chunk: int = Field(default=256, ge=1, le=1_000_000)  # tokens of a chunk of the kernel

    @property
    def inner(self) -> int:
        """Width of all heads."""
        return self.heads * self.head_dim

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        h, inner = stream.hidden, self.inner
        yield Tensor("lightning/in", h * inner * (3 + self.gate))
        yield Tensor("lightning/in_bias", 3 * inner * self.bias_qkv, matmul=False)
        yield Tensor("lightning/norm", inner * self.norm, matmul=False)
        yield replicated("lightning/qk_norm", 2 * self.head_dim * self.qk_norm)
        yield Tensor("lightning/out", inner * h)

    def products(self, stream: Stream) -> Iterator[Product]:
        columns = Pieces(self.inner * (3 + self.gate), self.heads)
        yield Product("lightning_in", stream.hidden, columns)
        yield Product("lightning_out", self.inner, Pieces(stream.hidden, 1), "rows")

    def core(self) -> tuple[Scan, ...]:
        # inside a chunk scores and values; the state read and written (arXiv 2405.17381 section 3)
        flop = 2.0 * self.inner * (2 * self.chunk + 2 * self.head_dim)
        return (Scan("lightning", flop, 4.0 * self.inner, self.heads),)

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        projected = activated("lightning/activation", Pieces(3 * self.inner, self.heads))
        return projected, gated("lightning/gate", Pieces(self.inner, self.heads))

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        return (
            Kept("lightning/in", Pieces((3 + self.gate) * self.inner, self.heads)),
            Kept("lightning/activation", Pieces(3 * self.inner, self.heads)),
            Kept("lightning/core", Pieces(self.inner, self.heads)),
            Kept("lightning/output", Pieces(self.inner, self.heads)),
        )

    def limits(self) -> tuple[Limit, ...]:
        return (Limit("heads of linear attention", self.heads),)

    def cached(self) -> Cached:
        return Cached(once=self.inner * self.head_dim, units=self.heads)
