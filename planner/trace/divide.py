"""Tensor parallelism of a traced block: GEMMs in pairs.

The first GEMMs of a pair are divided by columns (queries, keys and values; gate and up), the last
by rows (attention's output; down), and every tensor between them by heads or channels (Shoeybi et
al. 2019, arXiv 1909.08053, section 3). Outside of pairs each rank keeps the whole residual stream,
or under sequence parallelism a share of its tokens (Korthikanti et al. 2022, arXiv 2205.05198). The
role of a GEMM follows from the sources of its input, independent of names of modules.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from planner.trace.classes import ATTENTION, BATCHED, Call

STREAM = -1  # source of tensors that come from outside of a block
Sources = frozenset[int]  # GEMMs whose outputs a tensor is made of, without a GEMM in between
NO_SOURCE: Sources = frozenset()
WHOLE, DIVIDED, TOKENS, INPUT = "whole", "divided", "tokens", "input"
ROUTED, EXPERTS = "routed", "experts"  # copies of tokens: whole ones, and shares of channels


@dataclass(frozen=True)
class Multiplication:
    """A GEMM with a weight, forward."""

    region: int
    weight: str
    columns: int
    reads: Sources


@dataclass
class Seen:
    """An operator of a block forward, and its inputs."""

    region: int
    call: Call
    reads: list[tuple[Sources, tuple[int, ...]]]  # sources and shapes of what it reads
    written: int  # elements


@dataclass
class Division:
    """Roles of the GEMMs of a step. rows: the columns that each was fed by."""

    multiplications: list[Multiplication] = field(default_factory=list)
    columns: set[int] = field(default_factory=set)
    rows: dict[int, Sources] = field(default_factory=dict)

    def decide(self, regions: Collection[int]) -> None:
        """Pairs in these regions. A GEMM that reads nothing of the stream but what GEMMs gave ends
        a pair, the last ones first: what is before a pair is whole on every rank."""
        before = self._before()
        whole: set[int] = set()
        for at in reversed(range(len(self.multiplications))):
            each = self.multiplications[at]
            taken = at in self.columns or at in whole or STREAM in each.reads
            if each.region not in regions or taken or not each.reads:
                continue
            first = each.reads.difference(*(before[x] for x in each.reads))
            self.rows[at] = first
            self.columns |= first
            for x in first:
                whole |= before[x]

    def _before(self) -> list[Sources]:
        """GEMMs that each reads, through others as well, up to the stream."""
        out: list[Sources] = []
        for each in self.multiplications:
            reads = NO_SOURCE if STREAM in each.reads else each.reads
            out.append(reads.union(*(out[x] for x in reads)))
        return out

    def ranks(self, sources: Sources) -> str:
        """How ranks have a tensor."""
        if sources & self.columns:
            return DIVIDED
        return TOKENS if sources else WHOLE

    def copies(self, sources: Sources) -> str:
        """How ranks have copies of tokens for experts."""
        return EXPERTS if sources & self.columns else ROUTED

    def mixes(self, sources: Iterable[Sources]) -> bool:
        """Whether an operator reads what is divided beside what is whole on every rank."""
        every = NO_SOURCE.union(*sources)
        return bool(every & self.columns) and bool(every & {STREAM, *self.rows})

    def split(self, weight: str, region: int) -> str:
        """Division of a weight: "columns", "rows" or "none"."""
        calls = [
            at
            for at, x in enumerate(self.multiplications)
            if x.weight == weight and x.region == region
        ]
        for name, those in (("columns", self.columns), ("rows", self.rows)):
            if calls and all(at in those for at in calls):
                return name
        return "none"

    def gradient_of_input(self, weight: str, region: int) -> Sources:
        """Sources that the gradient of the input of a GEMM counts as: its rows meet what is
        divided."""
        if self.split(weight, region) != "rows":
            return frozenset([STREAM])
        return NO_SOURCE.union(
            *(first for at, first in self.rows.items() if self.multiplications[at].weight == weight)
        )

    def refused(self, seen: Seen, block: str) -> str:
        """Why ranks that have a share of what an operator of a block reads cannot run it."""
        call = seen.call
        module = call.module.removeprefix(block).strip(".")
        where = f"{call.operator} of {module or 'the block'}"
        if self.mixes(sources for sources, _ in seen.reads):
            return f"{where} reads what GEMMs would divide beside what every rank has whole"
        if call.kind == ATTENTION:
            divided = {bool(sources & self.columns) for sources, _ in seen.reads[:3]}
            return f"{where} has heads that GEMMs divide, and others" if len(divided) > 1 else ""
        if call.kind == BATCHED and call.words.get("weight"):
            return f"{where} multiplies with weights side by side"
        if call.kind not in ("normalisation", "softmax", "reduction"):
            return ""
        for sources, shape in seen.reads:
            widths = {self.multiplications[x].columns for x in sources & self.columns}
            over = call.kind != "reduction" or seen.written * shape[-1] == math.prod(shape)
            if shape and shape[-1] in widths and over:
                return f"{where} is over all {shape[-1]:,} columns that GEMMs would divide"
        return ""
