"""Hyper-connections (arXiv 2409.19606, and with a doubly stochastic mix the DeepSeek-V4 report,
section 2.2): the residual is several lanes, collapsed before a branch and mixed after it."""

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
    replicated,
)

_BYTES = 2.0  # of an element of 16 bit


class HyperConnection(Part):
    """One branch's weights of the lanes, made of all of them: to collapse them, to spread what the
    branch adds, and with a matrix to mix them; or only the weights of the collapse before the head.
    """

    type: Literal["hyper"] = "hyper"
    lanes: int = Field(ge=2, le=64)
    weights: Literal["matrix", "vectors", "head"] = "matrix"

    mixes = False

    @property
    def outputs(self) -> int:
        """Weights of all lanes for a token."""
        n = self.lanes
        return n * {"matrix": 2 + n, "vectors": 2, "head": 1}[self.weights]

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        yield Tensor("hyper/weights", self.lanes * stream.hidden * self.outputs, "replicated")
        # biases, and a scale for each kind of weights
        scales = {"matrix": 3, "vectors": 2, "head": 1}[self.weights]
        yield replicated("hyper/scales", self.outputs + scales)

    def products(self, stream: Stream) -> Iterator[Product]:
        yield Product(
            "hyper", self.lanes * stream.hidden, Pieces(self.outputs, 1), "none", low=False
        )

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        # collapsed: all lanes read, one written; spread: all and the branch's output read, all
        # written. Backward the gradients of both, and the lanes again for the weights'
        n, spread = self.lanes, self.weights != "head"
        forward = (n + 1) + (2 * n + 1) * spread
        backward = (2 * n + 1) + (3 * n + 2) * spread
        return (Streamed("hyper", Pieces(stream.hidden, 1), _BYTES * forward, _BYTES * backward),)

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        """The lanes that the branch reads, of which a plain decoder has one, kept as its norm's
        input; and what the branch gives, for the gradient of how it is spread."""
        spread = self.weights != "head"
        return (Kept("hyper/lanes", Pieces((self.lanes + spread) * stream.hidden, 1)),)
