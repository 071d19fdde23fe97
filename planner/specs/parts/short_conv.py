"""The gated short convolution of LFM2 (arXiv 2511.23404)."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from planner.specs.parts.base import (
    Kept,
    Part,
    Pieces,
    Product,
    Stream,
    Streamed,
    Tensor,
    convolved,
    gated,
    replicated,
)


class ShortConv(Part):
    """Three projections: gate in, gate out, and what is convolved over a few tokens."""

    type: Literal["short_conv"] = "short_conv"
    conv: int = Field(default=3, ge=1, le=1024)
    bias: bool = False

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        h = stream.hidden
        yield Tensor("conv/in", 3 * h * h)
        yield Tensor("conv/in_bias", 3 * h * self.bias, matmul=False)
        yield Tensor("conv/conv", h * (self.conv + self.bias), matmul=False)
        yield Tensor("conv/out", h * h)
        yield replicated("conv/out_bias", h * self.bias)

    def products(self, stream: Stream) -> Iterator[Product]:
        h = stream.hidden
        yield Product("conv_in", h, Pieces(3 * h, h))
        yield Product("conv_out", h, Pieces(h, 1), "rows")

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        whole = Pieces(stream.hidden, stream.hidden)
        gates = (gated("conv/gate_in", whole), gated("conv/gate_out", whole))
        return (*gates, convolved("conv/conv", whole))

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        # what was projected, its gated part, what was convolved, and what is projected out
        h = stream.hidden
        return Kept("conv/in", Pieces(3 * h, h)), Kept("conv/conv", Pieces(3 * h, h))
