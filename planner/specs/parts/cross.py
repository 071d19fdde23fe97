"""Cross-attention: queries of the sequence, keys and values of another one."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from planner.specs.parts.attention import QkNorm
from planner.specs.parts.base import (
    Attended,
    Cached,
    Heads,
    Limit,
    MaybeWidth,
    Part,
    Pieces,
    Positions,
    Product,
    Stream,
    Tensor,
    Width,
    replicated,
)


class CrossAttention(Part):
    """Attends to the output of an encoder or to an image, of this many tokens per sequence; None:
    from a tower to the model's sequence."""

    type: Literal["cross_attention"] = "cross_attention"
    heads: int = Heads
    kv_heads: int = Heads
    head_dim: int = Width
    source_tokens: int | None = Positions
    source_hidden: int | None = MaybeWidth  # width of a token attended to; None: hidden
    qk_norm: QkNorm = "none"
    gates: int = Field(default=0, ge=0, le=4)  # learned scalars of the branch (Mllama)
    bias_qkv: bool = False
    bias_out: bool = False

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        h, q, kv = stream.hidden, self.heads * self.head_dim, 2 * self.kv_heads * self.head_dim
        yield Tensor("cross/q", h * q, pieces=(Pieces(h * q, self.heads),))
        source = self.source_hidden or h
        pieces = (Pieces(source * kv, self.kv_heads),)
        yield Tensor("cross/kv", source * kv, pieces=pieces, tokens=self.source_tokens)
        yield Tensor("cross/qkv_bias", (q + kv) * self.bias_qkv, matmul=False)
        yield Tensor("cross/out", q * h)
        normed = {"none": 0, "per_head": 2 * self.head_dim, "full": q + kv // 2}[self.qk_norm]
        yield replicated("cross/qk_norm", stream.norm(normed))
        yield replicated("cross/gates", self.gates)
        yield replicated("cross/out_bias", h * self.bias_out)

    def products(self, stream: Stream) -> Iterator[Product]:
        q = self.heads * self.head_dim
        yield Product("cross_q", stream.hidden, Pieces(q, self.heads))
        kv = Pieces(self.kv_heads * self.head_dim, self.kv_heads)
        yield Product(
            "cross_kv",
            self.source_hidden or stream.hidden,
            kv,
            times=2,
            group="cross_kv",
            source_tokens=self.source_tokens,
        )
        yield Product("cross_out", q, Pieces(stream.hidden, 1), "rows")

    def core(self) -> tuple[Attended, ...]:
        width = self.head_dim
        return (
            Attended(
                self.heads,
                width,
                width,
                self.kv_heads,
                rotary=False,
                mask="full",
                keys=self.source_tokens,
            ),
        )

    def limits(self) -> tuple[Limit, ...]:
        return Limit("heads", self.heads), Limit("heads of keys and values", self.kv_heads, True)

    def cached(self) -> Cached:
        once = 2 * (self.source_tokens or 0) * self.kv_heads * self.head_dim
        return Cached(once=once, units=self.kv_heads)
