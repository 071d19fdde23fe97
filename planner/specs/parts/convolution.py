"""A convolution over the pixels of an image, with its batch norm and activation.

An image is one token: values per token are per image. Ranks share no convolution.
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

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
    replicated,
)

_MOST_PIXELS = 100_000
CHANNELS = "channels of convolutions"


def _moved(name: str, elements: Pieces, forward: float, backward: float) -> Streamed:
    return Streamed(name, elements, forward, backward, copied=True)


class Convolution(Part):
    """A square kernel over square images, without bias; after it a batch norm, the sum with what
    bypasses the block, and a ReLU in place."""

    type: Literal["convolution"] = "convolution"
    inputs: int = Width  # channels
    outputs: int = Width
    kernel: int = Field(default=1, ge=1, le=1000)  # pixels of a side
    stride: int = Field(default=1, ge=1, le=1000)
    pixels: int = Field(ge=1, le=_MOST_PIXELS)  # of a side of its output
    norm: bool = True
    sums: bool = False
    relu: bool = True
    keeps_input: bool = False  # an image, which no part before it keeps

    mixes = False
    operators = 4.0  # itself, its norm and the count of that, and its ReLU; own count

    @property
    def positions(self) -> int:
        """Pixels of its output."""
        return self.pixels**2

    @property
    def read(self) -> int:
        """Elements of its input: of a kernel smaller than the stride, those that it sees."""
        side = self.pixels * min(self.stride, self.kernel)
        return self.inputs * side**2

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        count = self.inputs * self.outputs * self.kernel**2
        yield Tensor("convolution/weights", count, "replicated", tokens=self.positions)
        yield replicated("convolution/norm", 2 * self.outputs * self.norm)

    def products(self, stream: Stream) -> Iterator[Product]:
        yield Product(
            "convolution",
            self.inputs * self.kernel**2,
            Pieces(self.outputs, 1),
            "none",
            source_tokens=self.positions,
            taps=self.kernel**2,
            read=self.read,
            input_gradient=not self.keeps_input,
        )

    @property
    def _whole(self) -> Pieces:
        return Pieces(self.outputs * self.positions, 1)

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        # of a batch norm the sums of a batch come before what they normalise: its input is read
        # twice forward, its input and its gradient twice backward
        streams = [_moved("convolution/norm", self._whole, 6.0, 10.0)] * self.norm
        streams += [_moved("convolution/sum", self._whole, 6.0, 6.0)] * self.sums
        return (*streams, *[_moved("convolution/relu", self._whole, 4.0, 6.0)] * self.relu)

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        kept = [Kept("convolution/image", Pieces(self.read, 1))] * self.keeps_input
        kept += [Kept("convolution/output", self._whole)] * self.norm
        return (*kept, *[Kept("convolution/relu", self._whole)] * self.relu)

    def limits(self) -> tuple[Limit, ...]:
        return (Limit(CHANNELS, 1),)


class Pooling(Part):
    """The largest of a square of pixels, whose places are kept in 64 bit."""

    type: Literal["pooling"] = "pooling"
    channels: int = Width
    stride: int = Field(default=2, ge=1, le=1000)
    pixels: int = Field(ge=1, le=_MOST_PIXELS)  # of a side of its output

    mixes = False
    operators = 1.0

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        return iter(())

    def products(self, stream: Stream) -> Iterator[Product]:
        return iter(())

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        # of 16-bit elements: the input, the output, and four for a place
        each = 2.0 * (self.stride**2 + 5)
        whole = Pieces(self.channels * self.pixels**2, 1)
        return (_moved("pooling", whole, each, each),)

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        whole = self.channels * self.pixels**2
        places = Kept("pooling/places", Pieces(4 * whole, 1))
        return Kept("pooling/output", Pieces(whole, 1)), places
