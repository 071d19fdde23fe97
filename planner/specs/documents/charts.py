"""Numbers of the charts that `dpplan estimate --chart` adds to an estimate."""

from __future__ import annotations

from typing import Annotated, Literal

from planner.specs.document import Document, key


class Kernel(Document):
    """A GEMM or attention kernel of one layer and micro-batch, or of the head, on one GPU."""

    name: Annotated[str, key("kernel and pass")]
    flop: Annotated[float, key("floating-point operations", "FLOP")]
    bytes: Annotated[float, key("memory traffic", "B")]
    seconds: Annotated[float, key("time of the kernel", "s")]

    @property
    def intensity(self) -> float:
        """FLOP per byte of memory traffic."""
        return self.flop / self.bytes

    @property
    def rate(self) -> float:
        """FLOP/s reached."""
        return self.flop / self.seconds


class Roofline(Document):
    """The kernels of a layout against the limits of its GPU."""

    dense_flop_per_s: Annotated[float, key("dense rate of the matrix units", "FLOP/s")]
    clock_flop_per_s: Annotated[float, key("the same at the clock under load", "FLOP/s")]
    memory_bytes_per_s: Annotated[float, key("memory bandwidth", "B/s")]
    kernels: Annotated[list[Kernel], key("in the order of a layer, then of the head")]

    @property
    def ridge(self) -> float:
        """FLOP per byte from which arithmetic is the limit."""
        return self.clock_flop_per_s / self.memory_bytes_per_s


class MessageTime(Document):
    """An all-reduce of one size."""

    bytes: Annotated[float, key("bytes reduced", "B")]
    seconds: Annotated[dict[str, float], key("by name of the algorithm", "s")]
    estimated_s: Annotated[float, key("time that the estimate takes", "s")]
    fastest: Annotated[str, key("name of the fastest algorithm")]


class Crossover(Document):
    """All-reduce algorithms of NCCL by message size over one group of ranks of a layout."""

    group: Annotated[Literal["data", "tensor"], key("which ranks reduce")]
    ranks: Annotated[float, key("ranks of the group")]
    ranks_per_node: Annotated[float, key("of them in one node")]
    titles: Annotated[dict[str, str], key("names of the algorithms for people")]
    sizes: Annotated[list[MessageTime], key("by message size, smallest first")]
    messages: Annotated[list[MessageTime], key("the all-reduces of this layout over this group")]
