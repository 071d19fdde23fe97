"""The real-gated linear recurrent unit of Griffin (arXiv 2402.19427), as in RecurrentGemma."""

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

_LRU_FLOP = (
    8.0  # per channel and token: gates applied, decay and its complement, the sum; own count
)


class RgLru(Part):
    """Two branches: a GELU, and a convolution with a gated recurrence by channel."""

    type: Literal["rg_lru"] = "rg_lru"
    inner: int = Width
    blocks: int = Heads  # the gates' matrices are block-diagonal
    conv: int = Field(default=4, ge=1, le=1024)

    @model_validator(mode="after")
    def _even(self) -> Self:
        if self.inner % self.blocks:
            raise ValueError(f"blocks {self.blocks} must divide inner {self.inner}")
        return self

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        h, inner = stream.hidden, self.inner
        yield Tensor("lru/in", 2 * h * inner)
        yield Tensor("lru/in_bias", 2 * inner, matmul=False)
        yield Tensor("lru/conv", inner * (self.conv + 1), matmul=False)
        yield Tensor("lru/gates", 2 * inner * (inner // self.blocks))
        yield Tensor("lru/gates_bias", 3 * inner, matmul=False)  # and the decay
        yield Tensor("lru/out", inner * h)
        yield replicated("lru/out_bias", h)

    def products(self, stream: Stream) -> Iterator[Product]:
        inner, block = self.inner, self.inner // self.blocks
        yield Product("lru_in", stream.hidden, Pieces(inner, inner), times=2, group="lru_in")
        yield Product("lru_gates", block, Pieces(inner, self.blocks), times=2, group="lru_gates")
        yield Product("lru_out", inner, Pieces(stream.hidden, 1), "rows")

    def core(self) -> tuple[Scan, ...]:
        return (Scan("rg_lru", _LRU_FLOP * self.inner, 4.0 * self.inner, self.blocks),)

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        inner = Pieces(self.inner, self.blocks)
        gates = activated("lru/gates", Pieces(2 * self.inner, self.blocks))
        return convolved("lru/conv", inner), gates, gated("lru/product", inner)

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        # the recurrence runs in fp32: two elements each
        inner, blocks = self.inner, self.blocks
        return (
            Kept("lru/in", Pieces(2 * inner, blocks)),
            Kept("lru/conv", Pieces(inner, blocks)),
            Kept("lru/gates", Pieces(4 * inner, blocks)),
            Kept("lru/core", Pieces(2 * inner, blocks)),
            Kept("lru/output", Pieces(inner, blocks)),
        )

    def limits(self) -> tuple[Limit, ...]:
        return (Limit("blocks of the recurrent unit", self.blocks),)

    def cached(self) -> Cached:
        return Cached(once=self.inner * (1 + self.conv), units=self.blocks)
