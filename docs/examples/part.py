"""A mixer that is not there yet: retention (arXiv 2307.08621), linear attention with a fixed decay
per head, a norm per head and a gate. One file says all that is counted of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

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
    gated,
)

CHUNK = 128  # tokens of a chunk of the kernel


class Retention(Part):
    """Queries and keys of hidden width, values and a gate twice as wide."""

    type: Literal["retention"] = "retention"
    heads: int = Heads
    key_dim: int = Width
    value_dim: int = Width

    @property
    def keys(self) -> int:
        return self.heads * self.key_dim

    @property
    def values(self) -> int:
        return self.heads * self.value_dim

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        # parameters: name, elements; tensor parallelism divides them unless they are replicated
        yield Tensor("retention/in", stream.hidden * 2 * (self.keys + self.values))
        yield Tensor("retention/out", self.values * stream.hidden)

    def products(self, stream: Stream) -> Iterator[Product]:
        # GEMMs: k rows, and columns that are divided by whole heads; "rows" divides k instead
        columns = Pieces(2 * (self.keys + self.values), self.heads)
        yield Product("retention_in", stream.hidden, columns)
        yield Product("retention_out", self.values, Pieces(stream.hidden, 1), "rows")

    def core(self) -> tuple[Scan, ...]:
        # per token: scores and values inside a chunk, the state read and written; what goes in and
        # out. The kernel's name is looked up in estimate/machine/mixers.py
        inside = CHUNK * (self.key_dim + self.value_dim)
        flop = 2.0 * self.heads * (inside + 2 * self.key_dim * self.value_dim)
        return (Scan("retention", flop, 2.0 * self.keys + 2.0 * self.values, self.heads),)

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        # kernels bound by bandwidth
        return (gated("retention/gate", Pieces(self.values, self.heads)),)

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        # per token, what backward needs besides the input: projections, the core's output, and what
        # is projected out
        projected = Pieces(2 * (self.keys + self.values), self.heads)
        values = Pieces(self.values, self.heads)
        return (
            Kept("retention/in", projected),
            Kept("retention/core", values),
            Kept("retention/output", values),
        )

    def limits(self) -> tuple[Limit, ...]:
        # what tp and cp have to divide, as reasons name it
        return (Limit("heads of retention", self.heads),)

    def cached(self) -> Cached:
        # what generating text keeps: a state per sequence
        return Cached(once=self.keys * self.value_dim, units=self.heads)
