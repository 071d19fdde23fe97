"""A block whose operators were counted while its own code ran on tensors without data.

`dpplan trace` writes it. Counts are polynomials of the samples of a micro-batch and the tokens of a
sequence (specs.polynomial): nothing here knows what the block is for. Ranks of tensor parallelism
share the GEMMs that were traced as pairs, and what is between them (planner/trace/divide.py). Ranks
of context parallelism share the tokens of a sequence, which have to meet in attention only, ranks
of expert parallelism the weights of GEMMs whose rows are tokens that a router sent.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Literal, Self

from pydantic import Field, model_validator

from planner.specs.base import Spec
from planner.specs.parts.base import (
    WIDTHS,
    Attended,
    Batched,
    Core,
    Heads,
    Limit,
    Mask,
    MaybeWidth,
    Moved,
    Part,
    Pieces,
    Product,
    Ranks,
    Shard,
    Spans,
    Split,
    Stream,
    Tensor,
    Width,
    replicated,
)
from planner.specs.parts.moe import Moe
from planner.specs.polynomial import NONE, ONCE, PER_TOKEN, Count, Polynomial

MOST_PARAMETERS = 10**13
_MOST_ROWS = 400  # of a block
_MOST_KERNELS = 10_000_000
_PLAIN = 2  # matrices of an expert without a gate
Operators = Literal[
    "normalisation", "softmax", "elementwise", "reduction", "gather", "copy", "scan"
]
# of what is kept: as `Ranks`; inputs of GEMMs that are divided by columns may be gathered whole
Shared = Literal["divided", "tokens", "input", "routed", "experts"]


class Gemm(Spec):
    """GEMMs with weights of one shape: (rows x k) (k x n)."""

    name: str = Field(max_length=100)  # of the module with the weight
    k: int = Width
    n: int = Width
    rows: Count = PER_TOKEN  # of one of them; with groups of all groups together
    times: int = Field(default=1, ge=1, le=100_000)
    groups: int = Field(default=1, ge=1, le=1_000_000)  # matrices side by side: experts
    shared: int = Field(default=0, ge=0, le=100_000)  # times whose weight is counted elsewhere
    taps: int = Field(default=1, ge=1, le=1_000_000)  # pixels of a kernel, part of k
    read: Count | None = None  # elements of a convolution's input
    input_gradient: bool = True  # False: of a convolution over what the model is given
    split: Split = "none"  # what tensor parallelism divides
    routed: bool = False  # whether the groups are experts, and the rows copies of tokens for them
    looped: bool = False  # whether these run one by one

    @model_validator(mode="after")
    def _copies(self) -> Self:
        if self.routed and not (self.groups > 1 and copies_of(self.rows)):
            raise ValueError(
                f"routed GEMMs have groups of 2 and more, and a whole number of copies of every"
                f" token as rows, such as 2*b*s; here groups {self.groups}, rows {self.rows}"
            )
        return self


class Multiplied(Spec):
    """GEMMs of activations: `batch` of (m x k) (k x n)."""

    name: str = Field(default="bmm", max_length=100)
    batch: Count
    m: Count
    k: Count
    n: Count
    split: bool = False  # whether tensor parallelism divides the batch


class Attends(Spec):
    """Scores, softmax and weighted values by one kernel."""

    heads: int = Heads
    kv_heads: int = Heads
    head_dim: int = Width
    value_dim: int | None = MaybeWidth  # None: head_dim
    mask: Mask = "causal"
    window: int | None = MaybeWidth
    groups: Count = ONCE  # sequences per sample: windows of an image, frames
    queries: Count = Polynomial(((0, 1, Fraction(1)),))
    keys: Count = Polynomial(((0, 1, Fraction(1)),))
    times: int = Field(default=1, ge=1, le=100_000)
    split: bool = False  # whether tensor parallelism divides the heads


class Moves(Spec):
    """Operators bound by memory bandwidth, by class: bytes read and written in 16 bit."""

    operators: Operators
    ranks: Ranks = "whole"  # what each has of the tensors
    forward: Count = NONE
    backward: Count = NONE
    fused_forward: Count = NONE  # chains of them as one kernel each
    fused_backward: Count = NONE
    again: Count = NONE  # of these, what norms read a second time, after their statistics
    again_backward: Count = NONE
    fused_again: Count = NONE
    fused_again_backward: Count = NONE
    kernels: int = Field(default=0, ge=0, le=_MOST_KERNELS)
    kernels_backward: int = Field(default=0, ge=0, le=_MOST_KERNELS)


class Share(Spec):
    """Tensors that a block keeps and ranks divide."""

    ranks: Shared
    saved: Count = NONE
    saved_bytes: Count = NONE
    fused_saved: Count = NONE
    fused_saved_bytes: Count = NONE
    frozen_saved: Count = NONE
    frozen_saved_bytes: Count = NONE
    working: Count = NONE


class Traced(Part):
    """A block of a model, counted operator by operator."""

    type: Literal["traced"] = "traced"
    module: str = Field(default="", max_length=200)  # class of the block, or where it is
    parameters: int = Field(default=0, ge=0, le=MOST_PARAMETERS)
    issued: float = Field(default=0.0, ge=0, le=_MOST_KERNELS)  # operators forward
    # the same with chains of them as one kernel each; 0: not traced
    fused_issued: float = Field(default=0.0, ge=0, le=_MOST_KERNELS)
    enters: Count = NONE  # elements of its input, which a recomputed block keeps
    saved: Count = NONE  # elements in the compute precision that backward needs
    saved_bytes: Count = NONE  # and bytes of other types: masks, statistics, indices
    fused_saved: Count = NONE  # the same where a compiler fuses chains of operators
    fused_saved_bytes: Count = NONE
    frozen_saved: Count | None = None  # of `saved`, what frozen weights leave; None: not traced
    frozen_saved_bytes: Count = NONE
    # of weights in fp32 under autocast, whose norms and losses work in fp32; None: not traced
    cast_saved: Count | None = None
    cast_saved_bytes: Count = NONE
    working: Count = NONE  # elements of the largest operator of backward
    gemms: tuple[Gemm, ...] = Field(default=(), strict=False, max_length=_MOST_ROWS)
    multiplied: tuple[Multiplied, ...] = Field(default=(), strict=False, max_length=_MOST_ROWS)
    attention: tuple[Attends, ...] = Field(default=(), strict=False, max_length=_MOST_ROWS)
    moves: tuple[Moves, ...] = Field(default=(), strict=False, max_length=_MOST_ROWS)

    shares: tuple[Share, ...] = Field(default=(), strict=False, max_length=_MOST_ROWS)
    undivided: str = Field(default="", max_length=300)  # the operator that ranks cannot share
    # the operator in which tokens meet, other than attention; None: not traced
    mixing: str | None = Field(default=None, max_length=300)

    adds = 0.0  # sums of the residual are among its operators

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        rest = self.parameters
        for gemm in self.gemms:
            count = gemm.k * gemm.n * gemm.groups
            weights = (gemm.times - gemm.shared) * count
            rest -= weights
            # a weight counted elsewhere is multiplied with here, too
            rows = scaled(gemm.rows, Fraction(gemm.times, gemm.groups))
            shard: Shard = "replicated" if gemm.split == "none" else "tensor"
            yield Tensor(
                f"traced/{gemm.name}",
                weights,
                "expert" if gemm.routed else shard,
                rows=scaled(rows, Fraction(count, max(weights, 1))),
            )
        yield replicated("traced/rest", max(rest, 0))

    def products(self, stream: Stream) -> Iterator[Product]:
        for gemm in self.gemms:
            yield Product(
                gemm.name,
                gemm.k,
                Pieces(gemm.n, gemm.n if gemm.split == "columns" else 1),
                gemm.split,
                times=gemm.times,
                join="never",
                rows=scaled(gemm.rows, Fraction(1, gemm.groups)),
                groups=gemm.groups,
                routed=gemm.routed,
                looped=gemm.looped,
                taps=gemm.taps,
                pixels=gemm.read,
                input_gradient=gemm.input_gradient,
                shared=gemm.shared,
            )

    def core(self) -> tuple[Core, ...]:
        attended = (
            Attended(
                each.heads,
                each.head_dim,
                each.value_dim or each.head_dim,
                each.kv_heads,
                rotary=False,
                mask=each.mask,
                window=each.window,
                spans=Spans(each.groups, each.queries, each.keys),
                split=each.split,
            )
            for each in self.attention
            for _ in range(each.times)
        )
        batched = (
            Batched(each.batch, each.m, each.k, each.n, each.split) for each in self.multiplied
        )
        return (*attended, *batched)

    def moved(self) -> tuple[Moved, ...]:
        return tuple(
            Moved(
                f"traced/{each.operators}",
                (each.forward, each.backward),
                (each.fused_forward, each.fused_backward),
                (each.again, each.again_backward),
                (each.fused_again, each.fused_again_backward),
                (float(each.kernels), float(each.kernels_backward)),
                each.ranks,
            )
            for each in self.moves
        )

    def limits(self) -> tuple[Limit, ...]:
        heads = [core for core in self.attention if core.split]
        widths = [gemm.n for gemm in self.gemms if gemm.split == "columns" and not gemm.routed]
        return (
            *(Limit("heads", core.heads) for core in heads),
            *(Limit("heads of keys and values", core.kv_heads) for core in heads),
            *(Limit(WIDTHS[0], width) for width in widths),
        )

    def rows(self) -> Iterator[Gemm]:
        """GEMMs whose outputs ranks add up, one per pair."""
        return (gemm for gemm in self.gemms if gemm.split == "rows")

    def whole(self) -> str:
        """Why ranks of tensor parallelism cannot share the block; empty where they can, or where
        there is nothing to share."""
        products = [gemm.name for gemm in self.gemms if gemm.read is None]
        if self.undivided or not self.module or not (products or self.attention):
            return self.undivided
        if not any(self.rows()):
            names = ", ".join(dict.fromkeys(products)) or "no GEMM"
            return f"no GEMM of it reads only what its other GEMMs give ({names})"
        if not all(x.split for x in self.attention) or not all(x.split for x in self.multiplied):
            return "not all of its attention is between GEMMs that divide heads"
        if len(products) < len(self.gemms):
            return "it has convolutions"
        return ""

    def meets(self) -> str:
        """Why ranks of context parallelism cannot share the sequence of the block; empty where they
        can: tokens meet only in attention over the sequence, beside which may be tokens of a fixed
        number, that every rank has."""
        for core in self.attention:
            if not _shared(core):
                apart = "" if core.groups == ONCE else f" in each of {core.groups} groups"
                spans = f"{core.queries} queries and {core.keys} keys{apart}"
                return f"its attention is over {spans}, not over the s tokens of a sequence"
        for each in self.multiplied:
            if each.n.power or each.k.power:
                return f"{each.name} of activations multiplies tokens with tokens"
        counted = [self.saved, self.fused_saved]
        counted += [x for each in self.moves for x in (each.forward, each.backward)]
        counted += [gemm.rows for gemm in self.gemms]
        if (self.gemms or self.attention) and any(each.power > 1 for each in counted):
            return "it has tensors of tokens by tokens"
        if self.mixing is None and (self.gemms or self.attention):
            return "where its tokens meet was not recorded when it was traced: trace it again"
        return self.mixing or ""

    def moe(self, hidden: int) -> Moe | None:
        """Its experts, in a model of this width; None for a block without experts."""
        experts = [gemm for gemm in self.gemms if gemm.routed]
        if not experts:
            return None
        first, last = experts[0], experts[-1]
        matrices = sum(gemm.k * gemm.n * gemm.times for gemm in experts) / (first.k * last.k)
        return Moe(
            experts=first.groups,
            experts_per_token=copies_of(first.rows),
            ffn_hidden=last.k,
            latent=None if first.k == hidden else first.k,
            gated=matrices > _PLAIN,
        )


def _shared(core: Attends) -> bool:
    """Whether ranks that have a share of the tokens s each can run an attention: over them, over
    keys that all have, or over as many tokens for any s."""
    growing = [
        tuple(x for x in count.terms if x[1]) for count in (core.groups, core.queries, core.keys)
    ]
    token = ((0, 1, Fraction(1)),)
    if growing[0]:
        return False
    whole = core.groups == ONCE and growing[1] == token
    return (whole and growing[2] in (token, ())) or not any(growing)


def routed_of(part: Part, hidden: int) -> Moe | None:
    """The experts of a part of a layer; None for a part without experts."""
    if isinstance(part, Traced):
        return part.moe(hidden)
    return part if isinstance(part, Moe) else None


def copies_of(rows: Polynomial) -> int:
    """Rows for every token; 0 where that is not a whole number."""
    each = [value for i, j, value in rows.terms if i == j == 1]
    whole = len(rows.terms) == 1 and each and each[0].denominator == 1
    return int(each[0]) if whole else 0


def scaled(count: Polynomial, factor: Fraction) -> Polynomial:
    """The polynomial times a factor."""
    if factor == 1:
        return count
    return Polynomial(tuple((i, j, value * factor) for i, j, value in count.terms))
