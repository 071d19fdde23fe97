"""The time mix of RWKV-4 (arXiv 2305.13048): a sum over the past with a decay per channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from planner.specs.parts.base import (
    Cached,
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
    activated,
    gated,
    replicated,
)

_WKV_FLOP = 10.0  # per channel and token: two running sums, scaled, added to and divided; own count


class Rwkv(Part):
    """Key, value and receptance, each of a mix with the token before."""

    type: Literal["rwkv"] = "rwkv"
    inner: int = Width

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        h, inner = stream.hidden, self.inner
        yield Tensor("rwkv/decay", 2 * inner, matmul=False)
        yield replicated("rwkv/time_mix", 3 * h)
        yield Tensor("rwkv/in", 3 * h * inner)
        yield Tensor("rwkv/out", inner * h)

    def products(self, stream: Stream) -> Iterator[Product]:
        # their inputs differ, so that no stack joins them
        inner = self.inner
        for name in ("rwkv_key", "rwkv_value", "rwkv_receptance"):
            yield Product(name, stream.hidden, Pieces(inner, inner))
        yield Product("rwkv_out", inner, Pieces(stream.hidden, 1), "rows")

    def core(self) -> tuple[Scan, ...]:
        return (Scan("wkv", _WKV_FLOP * self.inner, 3.0 * self.inner, self.inner),)

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        mixed = activated("rwkv/time_mix", Pieces(3 * stream.hidden, 1))
        return mixed, gated("rwkv/gate", Pieces(self.inner, self.inner))

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        inner = self.inner
        return (
            Kept("rwkv/time_mix", Pieces(3 * stream.hidden, 1)),
            Kept("rwkv/in", Pieces(3 * inner, inner)),
            Kept("rwkv/core", Pieces(inner, inner)),
            Kept("rwkv/output", Pieces(inner, inner)),
        )

    def limits(self) -> tuple[Limit, ...]:
        return (Limit("channels of RWKV", self.inner),)

    def cached(self) -> Cached:
        return Cached(once=3 * self.inner, units=self.inner)
