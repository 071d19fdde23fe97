"""The rest of a layer: small trained tensors, and one more GEMM."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from planner.specs.parts.base import (
    Kept,
    Part,
    Pieces,
    Positions,
    Product,
    Stream,
    Tensor,
    Width,
    replicated,
)

MAX_ELEMENTS = 10_000_000_000


class Extra(Part):
    """Trained tensors that no GEMM reads: scales, norms of a branch, biases."""

    type: Literal["extra"] = "extra"
    elements: int = Field(ge=1, le=MAX_ELEMENTS)

    mixes = False

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        yield replicated("extra/elements", self.elements)

    def products(self, stream: Stream) -> Iterator[Product]:
        return iter(())


class Projection(Part):
    """A dense layer on the way, whole on every rank: a gate, an adapter, the transform before a
    head."""

    type: Literal["projection"] = "projection"
    inputs: int = Width
    outputs: int = Width
    bias: bool = False
    tokens: int | None = Positions  # of a sample that pass it, where not all do

    mixes = False

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        count = self.inputs * self.outputs
        yield Tensor("projection/weights", count, "replicated", tokens=self.tokens)
        yield replicated("projection/bias", self.outputs * self.bias)

    def products(self, stream: Stream) -> Iterator[Product]:
        columns = Pieces(self.outputs, 1)
        yield Product("projection", self.inputs, columns, "none", source_tokens=self.tokens)

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        if self.tokens is not None:  # what reads it keeps it, or it has one token
            return ()
        return (Kept("projection/output", Pieces(self.outputs, 1)),)
