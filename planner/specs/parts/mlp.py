"""The dense MLP, and the channel mix of RWKV in its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from planner.specs.parts.base import (
    Kept,
    Limit,
    Part,
    Pieces,
    Product,
    Stream,
    Streamed,
    Tensor,
    Width,
    activated,
    gated,
    replicated,
)

Activation = Literal["gelu", "silu", "relu", "relu2"]


class Mlp(Part):
    """Up, activation and down; gated: with a gate beside up."""

    type: Literal["mlp"] = "mlp"
    ffn_hidden: int = Width
    gated: bool = True
    activation: Activation = "silu"
    bias: bool = False

    mixes = False

    @property
    def inputs(self) -> int:
        """Matrices that read its input: up and gate, or only up."""
        return 2 if self.gated else 1

    def tensors(self, of: Stream) -> Iterator[Tensor]:
        h, f = of.hidden, self.ffn_hidden
        sizes = (h * f,) * (self.inputs + 1)
        yield Tensor("mlp/weights", sum(sizes), sizes=sizes, join="gate")
        yield Tensor("mlp/bias_in", self.inputs * f * self.bias, matmul=False)
        yield replicated("mlp/bias_out", h * self.bias)

    def products(self, of: Stream) -> Iterator[Product]:
        h, f = of.hidden, self.ffn_hidden
        inputs = Pieces(f, f)
        yield Product("mlp_in", h, inputs, times=self.inputs, group="mlp_in", join="gate")
        yield Product("mlp_out", f, Pieces(h, 1), "rows")

    def limits(self) -> tuple[Limit, ...]:
        return (Limit("width of the MLP", self.ffn_hidden),)


class ChannelMix(Part):
    """The MLP of RWKV (arXiv 2305.13048): its input is mixed with the token before, its output
    gated by a receptance."""

    type: Literal["channel_mix"] = "channel_mix"
    ffn_hidden: int = Width

    mixes = False

    def tensors(self, of: Stream) -> Iterator[Tensor]:
        h, f = of.hidden, self.ffn_hidden
        yield replicated("mlp/time_mix", 2 * h)
        yield Tensor("mlp/weights", 2 * h * f)
        yield Tensor("mlp/receptance", h * h)

    def products(self, of: Stream) -> Iterator[Product]:
        h, f = of.hidden, self.ffn_hidden
        yield Product("mlp_in", h, Pieces(f, f))
        yield Product("mlp_receptance", h, Pieces(h, h))
        yield Product("mlp_out", f, Pieces(h, 1), "rows")

    def limits(self) -> tuple[Limit, ...]:
        return (Limit("width of the MLP", self.ffn_hidden),)

    def streams(self, of: Stream) -> tuple[Streamed, ...]:
        h, f = of.hidden, self.ffn_hidden
        mixed = activated("mlp/time_mix", Pieces(2 * h, 1))
        squared = activated("mlp/activation", Pieces(f, f))
        return mixed, squared, gated("mlp/receptance", Pieces(h, h))

    def kept(self, of: Stream) -> tuple[Kept, ...]:
        h, f = of.hidden, self.ffn_hidden
        inputs = Kept("mlp/time_mix", Pieces(2 * h, 1))
        return inputs, Kept("mlp/hidden", Pieces(2 * f, f)), Kept("mlp/gated", Pieces(2 * h, h))
