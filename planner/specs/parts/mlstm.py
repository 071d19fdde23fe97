"""mLSTM (xLSTM, arXiv 2405.04517; xLSTM 7B, arXiv 2503.13427): a matrix memory per head with
exponential input gates and a forget gate, computed chunk by chunk."""

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
    gated,
)


class Mlstm(Part):
    """Queries and keys of one width, values and an output gate of another; two gates per head."""

    type: Literal["mlstm"] = "mlstm"
    heads: int = Heads
    key_dim: int = Width
    value_dim: int = Width
    chunk: int = Field(default=64, ge=1, le=1_000_000)  # tokens of a chunk of the kernel

    @property
    def values(self) -> int:
        """Width of all values."""
        return self.heads * self.value_dim

    @property
    def columns(self) -> int:
        """Queries, keys, values, output gate, input and forget gates."""
        return self.heads * (2 * self.key_dim + 2 * self.value_dim + 2)

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        yield Tensor("mlstm/in", stream.hidden * self.columns)
        yield Tensor("mlstm/gates_bias", 2 * self.heads, matmul=False)
        yield Tensor("mlstm/norm", self.values, matmul=False)
        yield Tensor("mlstm/out", self.values * stream.hidden)

    def products(self, stream: Stream) -> Iterator[Product]:
        yield Product("mlstm_in", stream.hidden, Pieces(self.columns, self.heads))
        yield Product("mlstm_out", self.values, Pieces(stream.hidden, 1), "rows")

    def core(self) -> tuple[Scan, ...]:
        # inside a chunk scores and values; the memory read and written, and the normaliser read
        key, value = self.key_dim, self.value_dim
        each = self.chunk * (key + value) + 2 * key * value + key
        # read: all columns but the output gate; written: as many as the values
        moved = float(self.columns)
        return (Scan("mlstm", 2.0 * self.heads * each, moved, self.heads),)

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        return (gated("mlstm/gate", Pieces(self.values, self.heads)),)

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        values = Pieces(self.values, self.heads)
        return (
            Kept("mlstm/in", Pieces(self.columns, self.heads)),
            Kept("mlstm/core", values),
            Kept("mlstm/output", values),
        )

    def limits(self) -> tuple[Limit, ...]:
        return (Limit("heads of mLSTM", self.heads),)

    def cached(self) -> Cached:
        state = self.heads * (self.key_dim * self.value_dim + self.key_dim + 1)
        return Cached(once=state, units=self.heads)
