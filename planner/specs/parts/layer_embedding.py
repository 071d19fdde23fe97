"""The gate by which a layer reads an embedding of its own (Gemma 3n, Gemma 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from planner.specs.parts.base import (
    Kept,
    Part,
    Pieces,
    Product,
    Stream,
    Streamed,
    Tensor,
    Width,
    gated,
    replicated,
)


class LayerEmbedding(Part):
    """Gate down to the embedding's width, and its projection back, with a norm of its own. The
    table of all layers is counted with the embedding."""

    type: Literal["layer_embedding"] = "layer_embedding"
    width: int = Width
    vocab: int = Width  # rows of the table

    mixes = False

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        yield Tensor("layer_embedding/weights", 2 * stream.hidden * self.width, "replicated")
        yield replicated("layer_embedding/norm", stream.norm(stream.hidden))

    def products(self, stream: Stream) -> Iterator[Product]:
        h = stream.hidden
        yield Product("layer_embedding_in", h, Pieces(self.width, 1), "none")
        yield Product("layer_embedding_out", self.width, Pieces(h, 1), "none")

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        return (gated("layer_embedding/gate", Pieces(self.width, 1)),)

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        gate = Kept("layer_embedding/gate", Pieces(3 * self.width, 1))
        return gate, Kept("layer_embedding/output", Pieces(stream.hidden, 1))
