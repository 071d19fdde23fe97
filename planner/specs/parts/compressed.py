"""Attention to keys near by and to compressed ones (DeepSeek-V4 report, sections 2.3.1 and 2.3.2):
one head of keys, which are the values too, seen by all query heads."""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from planner.specs.parts.base import (
    MAX_POSITIONS,
    Attended,
    Cached,
    Core,
    Heads,
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
    replicated,
)
from planner.specs.parts.latent import SparseIndex

_SERIES = 2  # that overlap: a token is part of its own window's entry and of the next one's


class Compressed(Part):
    """Low-rank queries; keys of the last `window` tokens; and, with a `rate`, an entry for every
    `rate` tokens, of which an index chooses some (CSA) or all are seen (HCA)."""

    type: Literal["compressed"] = "compressed"
    heads: int = Heads
    head_dim: int = Width
    query_rank: int = Width
    window: int = Field(ge=1, le=MAX_POSITIONS)
    rate: int = Field(default=0, ge=0, le=MAX_POSITIONS)  # tokens of an entry; 0: there are none
    index: SparseIndex | None = None
    out_groups: int = Heads  # of heads, each projected to out_rank before all are mixed
    out_rank: int = Width

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.heads % self.out_groups:
            raise ValueError(f"out_groups {self.out_groups} must divide heads {self.heads}")
        if self.index and not self.rate:
            raise ValueError("index: there are no entries to choose from; state rate")
        return self

    @property
    def queries(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def entries(self) -> tuple[int, ...]:
        """Widths that make entries: of the attention's, and of the index's."""
        if not self.rate:
            return ()
        return (self.head_dim, self.index.head_dim) if self.index else (self.head_dim,)

    @property
    def compressed(self) -> int:
        """Columns that a token is projected to for its entries: values and their weights."""
        return 2 * (_SERIES if self.index else 1) * sum(self.entries)

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        h, rank = stream.hidden, self.query_rank
        yield Tensor("attention/q_down", h * rank, "replicated")
        yield replicated("attention/q_norm", rank)
        yield Tensor("attention/q_up", rank * self.queries)
        yield Tensor("attention/kv", h * self.head_dim, "replicated")
        yield replicated("attention/kv_norm", self.head_dim)
        yield Tensor("attention/sinks", self.heads, matmul=False)
        yield Tensor("attention/out_down", self.queries * self.out_rank)
        yield Tensor("attention/out", self.out_groups * self.out_rank * h)
        yield Tensor("attention/compress", h * self.compressed, "replicated")
        yield replicated("attention/compress_places", self.rate * self.compressed // 2)
        yield replicated("attention/compress_norm", sum(self.entries))
        if self.index:
            yield Tensor("attention/index_q", rank * self._index_width, "replicated")
            yield Tensor("attention/index_weights", h * self.index.heads, "replicated")

    @property
    def _index_width(self) -> int:
        return self.index.heads * self.index.head_dim if self.index else 0

    def products(self, stream: Stream) -> Iterator[Product]:
        h, rank = stream.hidden, self.query_rank
        yield Product("q_kv_down", h, Pieces(rank + self.head_dim, 1), "none")
        yield Product("q_up", rank, Pieces(self.queries, self.heads))
        if self.rate:
            yield Product("compress", h, Pieces(self.compressed, 1), "none")
        if self.index:
            yield Product("index_q", rank, Pieces(self._index_width, 1), "none")
            yield Product("index_weights", h, Pieces(self.index.heads, 1), "none")
        inner = self.out_groups * self.out_rank
        # a block for every group: the rows of one, the columns of all
        yield Product("out_down", self.queries // self.out_groups, Pieces(inner, self.out_groups))
        yield Product("attention_out", inner, Pieces(h, 1), "rows")

    def core(self) -> tuple[Core, ...]:
        d, rate = self.head_dim, max(self.rate, 1)
        seen = Attended(
            self.heads,
            d,
            d,
            kv_heads=1,
            sent=-(-d // rate),
            window=self.index.top_k if self.index else None if self.rate else self.window,
            rate=rate,
            near=self.window if self.rate else 0,
            kernel="dsa",
            absorbed=2 * d,
        )
        if not self.index:
            return (seen,)
        index = Attended(
            self.index.heads,
            self.index.head_dim,
            0,
            kv_heads=1,
            sent=-(-self.index.head_dim // rate),
            rate=rate,
            kernel="dsa_index",
            chosen=self.index.top_k,
            split=False,
        )
        return index, seen

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        # the norm of every query head, and the weighted sums of tokens
        streams = [activated("attention/query_norm", Pieces(self.queries, self.heads))]
        if self.rate:
            streams.append(activated("attention/compress", Pieces(self.compressed, 1)))
        return tuple(streams)

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        """Inputs of norms, of GEMMs and of the attention, whose output is one of them."""
        queries = Pieces(self.queries, self.heads)
        small = 2 * (self.query_rank + self.head_dim) + self.out_groups * self.out_rank
        index = self._index_width + (self.index.heads if self.index else 0)
        return (
            Kept("attention/query_norm", queries),
            Kept("attention/queries", queries),
            Kept("attention/output", queries),
            Kept("attention/narrow", Pieces(small, 1)),
            Kept("attention/compress", Pieces(self.compressed + index, 1)),
        )

    def limits(self) -> tuple[Limit, ...]:
        return Limit("heads", self.heads), Limit("groups of heads", self.out_groups)

    def cached(self) -> Cached:
        entries = sum(-(-width // self.rate) for width in self.entries)
        return Cached(entries, once=self.window * self.head_dim)
