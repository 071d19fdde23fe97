"""Shifts, scales and gates that a diffusion transformer makes of a sample's time and text (adaLN,
arXiv 2212.09748 section 3.2): once per sample, for all of its tokens."""

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
    activated,
    replicated,
)


class Modulation(Part):
    """A dense layer of a vector as wide as the model, whose parts shift and scale the norms of a
    layer and gate what its blocks add."""

    type: Literal["modulation"] = "modulation"
    norms: int = Field(default=2, ge=0, le=100)  # that it shifts and scales
    gates: int = Field(default=2, ge=0, le=100)  # of branches

    mixes = False
    operators = 8.0  # activation, product, its parts, two to a norm and one to a gate; own count

    @property
    def vectors(self) -> int:
        """Made of a sample's vector."""
        return 2 * self.norms + self.gates

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        h = stream.hidden
        yield Tensor("modulation/weights", self.vectors * h * h, "replicated", tokens=1)
        yield replicated("modulation/bias", self.vectors * h)

    def products(self, stream: Stream) -> Iterator[Product]:
        h = stream.hidden
        columns = Pieces(self.vectors * h, 1)
        yield Product("modulation", h, columns, "none", source_tokens=1)

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        # backward the gradients of shift, scale and gate are summed over tokens as they are passed
        whole = Pieces((self.norms + self.gates) * stream.hidden, 1)
        return (activated("modulation/applied", whole),)

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        # what was normed, for its scale's gradient, and each branch, for its gate's
        return (Kept("modulation/applied", Pieces((self.norms + self.gates) * stream.hidden, 1)),)
