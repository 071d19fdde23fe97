"""Mamba-2 (arXiv 2405.21060): heads with one decay each and a state of head_dim x state."""

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
    convolved,
    gated,
    replicated,
)


class Mamba2(Part):
    """A Mamba-2 mixer, computed in chunks."""

    type: Literal["mamba2"] = "mamba2"
    heads: int = Heads
    head_dim: int = Width
    state: int = Width
    groups: int = Field(default=1, ge=1, le=100_000)  # heads of a group share their weights in, out
    conv: int = Field(default=4, ge=1, le=1024)
    conv_bias: bool = True
    bias: bool = False  # of the projections in and out
    norm: bool = True  # of the gated output
    chunk: int = Field(default=256, ge=1, le=1_000_000)  # tokens of a chunk of the kernel

    @property
    def inner(self) -> int:
        """Width of all heads."""
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Columns that pass the convolution: values, and weights in and out of the state."""
        return self.inner + 2 * self.groups * self.state

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        h, inner = stream.hidden, self.inner
        grouped = Pieces(2 * h * self.groups * self.state, self.groups)
        headed = Pieces(h * (2 * inner + self.heads), self.heads)
        yield Tensor("mamba/in", h * self.projected, pieces=(headed, grouped))
        yield Tensor("mamba/in_bias", self.projected * self.bias, matmul=False)
        yield Tensor("mamba/conv", self.convolved * (self.conv + self.conv_bias), matmul=False)
        yield Tensor("mamba/decay", 3 * self.heads, matmul=False)  # step's bias, decay, skip
        yield Tensor("mamba/norm", inner * self.norm, matmul=False)
        yield Tensor("mamba/out", inner * h)
        yield replicated("mamba/out_bias", h * self.bias)

    @property
    def projected(self) -> int:
        """Width of in_proj: z, conv channels (x, B, C) and dt."""
        return self.inner + self.convolved + self.heads

    def products(self, stream: Stream) -> Iterator[Product]:
        headed = Pieces(2 * self.inner + self.heads, self.heads)
        grouped = Pieces(2 * self.groups * self.state, self.groups)
        yield Product("mamba_in", stream.hidden, headed, group="mamba_in")
        yield Product("mamba_in", stream.hidden, grouped, group="mamba_in")
        yield Product("mamba_out", self.inner, Pieces(stream.hidden, 1), "rows")

    def core(self) -> tuple[Scan, ...]:
        # inside a chunk scores by group and values by head, masked or not, as the kernel computes
        # them; the state of each chunk, and its part of the output (arXiv 2405.21060 section 6)
        inside = self.chunk * (self.groups * self.state + self.inner)
        across = 2 * self.inner * self.state
        moved = 2.0 * self.inner + 2.0 * self.groups * self.state + self.heads
        return (Scan("mamba2_scan", 2.0 * (inside + across), moved, self.heads),)

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        inner = Pieces(self.inner, self.heads)
        passes = convolved("mamba/conv", Pieces(self.convolved, self.heads))
        return passes, gated("mamba/norm", inner)

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        # the fused kernel keeps what was projected and what the scan gives
        # (mamba_split_conv1d_scan_combined); the projection out keeps its input
        headed = Pieces(2 * self.inner + self.heads, self.heads)
        grouped = Pieces(2 * self.groups * self.state, self.groups)
        inner = Pieces(self.inner, self.heads)
        return (
            Kept("mamba/in", headed),
            Kept("mamba/grouped", grouped),
            Kept("mamba/scan", inner),
            Kept("mamba/output", inner),
        )

    def limits(self) -> tuple[Limit, ...]:
        # a rank has whole groups: MambaMixer of Megatron-Core asserts that tp divides them
        return Limit("heads of Mamba-2", self.heads), Limit("groups of states", self.groups)

    def cached(self) -> Cached:
        state = self.inner * self.state + self.convolved * self.conv
        return Cached(once=state, units=self.heads)
