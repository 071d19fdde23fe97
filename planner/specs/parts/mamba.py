"""Selective state spaces: Mamba (arXiv 2312.00752), a state per channel."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from planner.specs.parts.base import (
    Cached,
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
    replicated,
)

# FLOP per channel and state element of a token: decay and input, multiplied and added to the state,
# which is multiplied with its output weight; own count
_SCAN_FLOP = 6.0


class Mamba(Part):
    """A Mamba-1 mixer: every channel has a diagonal state of its own."""

    type: Literal["mamba"] = "mamba"
    inner: int = Width  # channels, mostly twice hidden
    state: int = Width
    dt_rank: int = Width
    conv: int = Field(default=4, ge=1, le=1024)
    conv_bias: bool = True
    bias: bool = False  # of the projections in and out
    norms: bool = False  # trained ones on what the scan is steered by (Jamba)

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        h, inner, steered = stream.hidden, self.inner, self.dt_rank + 2 * self.state
        yield Tensor("mamba/in", 2 * inner * h)
        yield Tensor("mamba/in_bias", 2 * inner * self.bias, matmul=False)
        yield Tensor("mamba/conv", inner * (self.conv + self.conv_bias), matmul=False)
        yield Tensor("mamba/steer", inner * steered)
        yield Tensor("mamba/step", self.dt_rank * inner)
        yield Tensor("mamba/step_bias", inner, matmul=False)
        yield Tensor("mamba/decay", inner * self.state + inner, matmul=False)
        yield replicated("mamba/norms", steered * self.norms)
        yield Tensor("mamba/out", inner * h)
        yield replicated("mamba/out_bias", h * self.bias)

    def products(self, stream: Stream) -> Iterator[Product]:
        inner = self.inner
        yield Product("mamba_in", stream.hidden, Pieces(2 * inner, inner))
        yield Product("mamba_steer", inner, Pieces(self.dt_rank + 2 * self.state, 1), "rows")
        yield Product("mamba_step", self.dt_rank, Pieces(inner, inner))
        yield Product("mamba_out", inner, Pieces(stream.hidden, 1), "rows")

    def core(self) -> tuple[Scan, ...]:
        moved = (
            4.0 * self.inner + 2.0 * self.state
        )  # x, z, step in, y out; input and output weights
        flop = _SCAN_FLOP * self.inner * self.state
        return (Scan("mamba_scan", flop, moved, self.inner),)

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        return (convolved("mamba/conv", Pieces(self.inner, self.inner)),)

    def inner_sums(self) -> int:
        # what steers the scan depends on all channels: its product is over rows, and each rank's
        # gradient of it covers the rank's channels (x_proj of vLLM's MambaMixer is RowParallel)
        return self.dt_rank + 2 * self.state

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        # convolution and steps are computed again in backward (mamba_inner_fn, checkpoint_lvl 1)
        inner = self.inner
        steered = Kept("mamba/steer", Pieces(self.dt_rank + 2 * self.state, 1))
        return Kept("mamba/in", Pieces(2 * inner, inner)), steered, _output(inner)

    def limits(self) -> tuple[Limit, ...]:
        return (Limit("channels of Mamba", self.inner),)

    def cached(self) -> Cached:
        return Cached(once=self.inner * (self.state + self.conv), units=self.inner)


def _output(inner: int) -> Kept:
    return Kept("mamba/output", Pieces(inner, inner))
