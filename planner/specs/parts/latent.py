"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), with or without a sparse index
(DeepSeek sparse attention, DeepSeek-V3.2-Exp report)."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from planner.specs.base import Spec
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
    Positions,
    Product,
    Stream,
    Tensor,
    Width,
    replicated,
)


class SparseIndex(Spec):
    """The lightning indexer: narrow heads score all keys, attention reads the best of them."""

    heads: int = Heads
    head_dim: int = Width
    top_k: int = Field(ge=1, le=MAX_POSITIONS)  # keys that a query attends to
    own: bool = True  # False: the keys that an earlier layer chose (GLM-5)


class LatentAttention(Spec):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): low-rank queries, keys and
    values."""

    query_rank: int | None = Field(
        default=None, ge=1, le=10_000_000
    )  # None: queries are projected directly
    kv_rank: int = Width
    nope_head_dim: int = Width  # query/key width without RoPE, per head
    rope_head_dim: int = Width  # width under RoPE, shared by all heads on the key side
    value_head_dim: int = Width
    index: SparseIndex | None = None


class Latent(LatentAttention, Part):
    """Latent attention of a layer."""

    type: Literal["latent"] = "latent"
    heads: int = Heads
    window: int | None = Positions  # sliding window in tokens
    bias_out: bool = False
    bias_down: bool = False

    @property
    def query_width(self) -> int:
        return self.nope_head_dim + self.rope_head_dim

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        h, rank, q = stream.hidden, self.query_rank, self.heads * self.query_width
        if rank is None:
            yield Tensor("attention/q", h * q)
        else:
            yield Tensor("attention/q_down", h * rank, "replicated")
            yield replicated("attention/q_norm", stream.norm(rank))
            yield Tensor("attention/q_up", rank * q)
        yield Tensor("attention/kv_down", h * (self.kv_rank + self.rope_head_dim), "replicated")
        down = self.kv_rank + self.rope_head_dim + (rank or 0)
        yield replicated("attention/down_bias", down * self.bias_down)
        yield replicated("attention/kv_norm", stream.norm(self.kv_rank))
        up = self.heads * (self.nope_head_dim + self.value_head_dim)
        yield Tensor("attention/kv_up", self.kv_rank * up)
        yield Tensor("attention/out", self.heads * self.value_head_dim * h)
        yield replicated("attention/out_bias", h * self.bias_out)
        if self.index and self.index.own:
            width, read = self.index.heads * self.index.head_dim, rank or h
            yield Tensor("attention/index_q", read * width, "replicated")
            narrow = self.index.head_dim + self.index.heads
            yield Tensor("attention/index_k", h * narrow, "replicated")
            yield replicated("attention/index_norm", 2 * self.index.head_dim)

    def products(self, stream: Stream) -> Iterator[Product]:
        h, q = stream.hidden, Pieces(self.heads * self.query_width, self.heads)
        down = self.kv_rank + self.rope_head_dim
        if self.query_rank is None:
            yield Product("q", h, q)
            yield Product("kv_down", h, Pieces(down, 1), "none")
        else:
            yield Product("q_kv_down", h, Pieces(self.query_rank + down, 1), "none")
            yield Product("q_up", self.query_rank, q)
        up = self.heads * (self.nope_head_dim + self.value_head_dim)
        yield Product("kv_up", self.kv_rank, Pieces(up, self.heads))
        if self.index and self.index.own:
            width = self.index.heads * self.index.head_dim
            yield Product("index_q", self.query_rank or h, Pieces(width, 1), "none")
            narrow = self.index.head_dim + self.index.heads
            yield Product("index_k", h, Pieces(narrow, 1), "none")
        yield Product("attention_out", self.heads * self.value_head_dim, Pieces(h, 1), "rows")

    def core(self) -> tuple[Core, ...]:
        width, value = self.query_width, self.value_head_dim
        sent = self.kv_rank + self.rope_head_dim
        if self.index is None:
            turned = self.rope_head_dim
            return (
                Attended(self.heads, width, value, sent=sent, window=self.window, turned=turned),
            )
        chosen = Attended(
            self.heads,
            width,
            value,
            sent=sent,
            window=self.index.top_k,
            kernel="dsa",
            absorbed=sent + self.kv_rank,
        )
        if not self.index.own:
            return (chosen,)
        index = Attended(
            self.index.heads,
            self.index.head_dim,
            0,
            kv_heads=1,
            sent=self.index.head_dim,
            kernel="dsa_index",
            chosen=self.index.top_k,
            split=False,
        )
        return index, chosen

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        if self.index is None or not self.index.own:
            return ()
        whole = self.index.heads * self.index.head_dim + self.index.head_dim + self.index.heads
        return (Kept("attention/index", Pieces(whole, 1)),)

    def limits(self) -> tuple[Limit, ...]:
        return (Limit("heads", self.heads),)

    def cached(self) -> Cached:
        index = self.index.head_dim if self.index and self.index.own else 0
        return Cached(self.kv_rank + self.rope_head_dim + index, self.window)
