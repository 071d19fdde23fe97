"""Base of the parts of a layer, which declare tensors, GEMMs and core operators as counts.

A part is a frozen spec with a `type`. What it declares is plain data: the floors above price it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from planner.ledger import Array
from planner.specs.base import Spec
from planner.specs.polynomial import Polynomial

Shard = Literal["tensor", "replicated", "expert"]
Mask = Literal["causal", "full"]
Split = Literal["columns", "rows", "none"]
# how ranks have a tensor of a traced block: each whole; of tensor parallelism a share of its heads
# or channels, and under sequence parallelism a share of its tokens; routed: copies of tokens for
# the experts of a rank; experts: the same, of which ranks that split experts have a share
Ranks = Literal["whole", "divided", "tokens", "routed", "experts"]

# twice the deepest Transformer that was trained (1,000 layers: DeepNet, arXiv 2203.00555); layouts
# of more layers would be searched for minutes
MOST_LAYERS = 2_000
Width = Field(ge=1, le=10_000_000)
MaybeWidth = Field(default=None, ge=1, le=10_000_000)
Heads = Field(ge=1, le=100_000)
MAX_POSITIONS = 1_000_000_000
Positions = Field(default=None, ge=1, le=MAX_POSITIONS)


@dataclass(frozen=True)
class Stream:
    """The residual stream and its norms, which all parts read and write."""

    hidden: int
    norm_bias: bool = False

    def norm(self, width: int) -> int:
        """Elements of a norm of this width."""
        return width * (2 if self.norm_bias else 1)


@dataclass(frozen=True)
class Pieces:
    """Elements that ranks divide by whole units: heads, groups, single columns. A rank has one unit
    at least: where there are more ranks than units, they are repeated."""

    elements: int
    units: int

    def local(self, ranks: Array) -> Array:
        """Elements of one of this many ranks."""
        return np.maximum(self.units, ranks) * (self.elements / self.units) / ranks


@dataclass(frozen=True)
class Tensor:
    """Parameters of one layer that are divided and used alike."""

    name: str
    count: int  # elements
    shard: Shard = "tensor"
    matmul: bool = True  # a weight of a matrix multiplication, hence 2 FLOP per token and element
    active_frac: tuple[int, int] = (1, 1)  # share that one token uses (routed experts)
    pieces: tuple[Pieces, ...] = ()  # where some of it is divided by units; else by elements
    # elements of the tensors it is kept as, where those are several; a stack may join them: the
    # weights of queries, keys and values all, an MLP's all but the last. Experts have them each
    sizes: tuple[int, ...] = ()
    join: Literal["none", "qkv", "gate"] = "none"
    experts: int = 1
    tokens: int | None = None  # per sequence that a GEMM has it for, where not all of them
    rows: Polynomial | None = None  # the same where it is counted by samples and tokens

    def used(self, seq_tokens: float) -> float:
        """Tokens per sequence that a GEMM has it for."""
        if self.rows is not None:
            return float(self.rows.at(1.0, seq_tokens))
        return float(self.tokens or seq_tokens)

    def local(self, ranks: Array) -> Array:
        """Elements of one rank of tensor parallelism."""
        if self.shard == "replicated":
            return float(self.count) + 0 * ranks
        if self.pieces:
            return sum(piece.local(ranks) for piece in self.pieces)
        return float(self.count) / ranks


def replicated(name: str, count: int) -> Tensor:
    """Norms, biases of sums and the like: whole on every rank, in no GEMM."""
    return Tensor(name, count, "replicated", matmul=False)


@dataclass(frozen=True)
class Product:
    """GEMMs of one weight shape forward: (tokens x k) (k x n).

    times: how many there are; `join`: a stack that fuses these computes all products of the group
    as one, n side by side.
    """

    name: str
    k: int
    n: Pieces
    split: Split = "columns"  # what tensor parallelism divides
    times: int = 1
    group: str = ""
    join: Literal["always", "qkv", "gate", "never"] = "always"
    low: bool = True  # in 8 or 4 bit where the recipe is
    source_tokens: int | None = None  # tokens per sequence, where it reads another one
    taps: int = 1  # of a convolution: pixels of its kernel, which are part of k
    read: int | None = None  # and elements per sequence that it reads: a pixel is in many windows
    # of a traced block: rows, and elements read, of a micro-batch; groups: GEMMs at once
    rows: Polynomial | None = None
    pixels: Polynomial | None = None
    groups: int = 1
    routed: bool = False  # whether the groups are experts that tokens are sent to
    looped: bool = False  # whether these are computed one by one
    input_gradient: bool = True  # of a convolution: what the model is given needs none
    shared: int = 0  # of `times`: uses of a weight that is counted once, such as ALBERT's layers


@dataclass(frozen=True)
class Spans:
    """Tokens of attention in a sample, where they differ from the sequence."""

    groups: Polynomial  # sequences per sample, which do not see each other
    queries: Polynomial
    keys: Polynomial

    def at(self, seq_tokens: Array, ranks: Array = 1.0) -> tuple[Array, Array, Array]:
        """Groups, queries of a rank and keys for sequences of this many tokens. ranks: share the
        queries that grow with the sequence; each has all others, such as a text's."""
        groups, keys = self.groups.at(1.0, seq_tokens), self.keys.at(1.0, seq_tokens)
        return groups, self.queries.at(1.0, seq_tokens, ranks), keys


@dataclass(frozen=True)
class Attended:
    """Scores, softmax and weighted values of one layer."""

    heads: int
    query_width: int
    value_width: int
    kv_heads: int = 0  # heads of keys and values that are kept and sent; 0: as many as heads
    sent: int = 0  # width of a vector that is sent in their place; 0: there is none
    own_kv: bool = True
    rotary: bool = True
    mask: Mask = "causal"
    window: int | None = None  # keys that a query sees at most
    chunk: int | None = None  # tokens of the blocks that see nothing outside themselves
    keys: int | None = None  # tokens attended to, where they are not the sequence itself
    biased: bool = False  # scores have a learned bias, whose gradient no fused kernel computes
    kernel: Literal["attention", "dsa", "dsa_index"] = "attention"  # whose rate it has
    # elements per key that a kernel over chosen latent keys works on, in place of both widths
    absorbed: int = 0
    chosen: int = 0  # keys that an index chooses per query
    rate: int = 1  # tokens that a key stands for, each seen from the last of them on
    near: int = 0  # keys of single tokens near by that a query sees besides
    turned: int = 0  # width that rotation turns of a latent query, whose keys are made of parts
    split: bool = True  # whether tensor parallelism divides the heads
    sinks: bool = False  # a learned logit per head beside the scores
    spans: Spans | None = None  # tokens, where they differ from the sequence

    @property
    def apart(self) -> bool:
        """Whether the number of keys is fixed, whatever the sequence, such as the keys of a text
        beside an image's tokens: every rank of context parallelism has all of them."""
        return self.keys is not None or (self.spans is not None and not self.spans.keys.power)


@dataclass(frozen=True)
class Scan:
    """A recurrence over the sequence, or another core kernel whose work is linear in tokens.

    By token and layer; a fit by the name and the GPU's architecture gives the share of the roofline
    that it reaches. FLOP are counted for the chunked kernel.
    """

    name: str
    flop: float
    read_elements: float  # read and written forward, inputs and outputs once each
    units: int  # heads or channels that tensor parallelism divides


@dataclass(frozen=True)
class Batched:
    """GEMMs of activations, counted in a traced block: `batch` of (m x k) (k x n)."""

    batch: Polynomial
    m: Polynomial
    k: Polynomial
    n: Polynomial
    split: bool = False  # whether tensor parallelism divides the batch

    def sizes(self, samples: Array, tokens: Array) -> tuple[Array, Array, Array, Array]:
        """m, n, k and batch of a micro-batch."""
        m, n, k, batch = (x.at(samples, tokens) for x in (self.m, self.n, self.k, self.batch))
        return m, n, k, batch

    def flop(self, samples: Array, tokens: Array) -> Array:
        """Forward, of a micro-batch."""
        m, n, k, batch = self.sizes(samples, tokens)
        return 2.0 * m * n * k * batch


Core = Attended | Scan | Batched


@dataclass(frozen=True)
class Streamed:
    """A kernel bound by bandwidth beside GEMMs and cores, per token and layer."""

    name: str
    elements: Pieces
    forward: float  # bytes moved per element, counted for elements of 16 bit
    backward: float
    convolution: bool = False  # has a rate of its own
    copied: bool = False  # at the rate of a copy: long tensors, few operations per element


@dataclass(frozen=True)
class Moved:
    """Operators of a traced block that are bound by bandwidth: bytes forward and backward, counted
    for elements of 16 bit, operator by operator and with chains of them fused; the part that
    norms read a second time; kernels of both."""

    name: str
    apart: tuple[Polynomial, Polynomial]
    fused: tuple[Polynomial, Polynomial]
    again: tuple[Polynomial, Polynomial]
    fused_again: tuple[Polynomial, Polynomial]
    kernels: tuple[float, float]
    ranks: Ranks = "whole"


def convolved(name: str, elements: Pieces) -> Streamed:
    """A causal convolution over a few tokens, with its activation: read and written; backward its
    input again, and gradients."""
    return Streamed(name, elements, 4.0, 8.0, convolution=True)


def activated(name: str, elements: Pieces) -> Streamed:
    """A function of each element, or of the elements of a head: read and written; backward its
    input again."""
    return Streamed(name, elements, 4.0, 6.0)


def gated(name: str, elements: Pieces) -> Streamed:
    """A product with a gate, norm included: two read, one written; backward three read and two
    written."""
    return Streamed(name, elements, 6.0, 10.0)


@dataclass(frozen=True)
class Kept:
    """Activations kept for backward per token: elements in the compute precision."""

    name: str
    elements: Pieces


WIDTHS = ("width of the MLP",)  # limits that are not head counts


@dataclass(frozen=True)
class Limit:
    """A count that tensor parallelism has to divide; of those that repeat, ranks beyond it hold
    copies."""

    what: str
    count: int
    repeats: bool = False


@dataclass(frozen=True)
class Cached:
    """Cache of a layer during generation: per token of context, and once per sequence."""

    per_token: int = 0  # elements
    window: int | None = None  # tokens of context kept at most
    once: int = 0  # elements of a state
    units: int = 1  # ranks over which it can be divided; more hold copies


class Part(Spec):
    """Base of all parts. `name` is how the layers of a model refer to it."""

    type: str
    name: str = Field(default="", max_length=100)

    mixes: ClassVar[bool] = True  # tokens of a sequence with each other
    # that torch issues forward, where the part is neither attention nor MLP of a decoder
    operators: ClassVar[float | None] = None
    adds: ClassVar[float] = 1.0  # sums of the residual after it

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        """Parameters of one layer."""
        raise NotImplementedError

    def products(self, stream: Stream) -> Iterator[Product]:
        """GEMMs of one layer, in the order of the forward pass; routed experts' GEMMs apart."""
        raise NotImplementedError

    def core(self) -> tuple[Core, ...]:
        """Operators that mix tokens."""
        return ()

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        """Kernels that only move data."""
        return ()

    def moved(self) -> tuple[Moved, ...]:
        """Kernels of a traced block that only move data."""
        return ()

    def inner_sums(self) -> int:
        """Elements per token that ranks of tensor parallelism add up inside the part, forward and
        backward, besides its output and the gradient of its input."""
        return 0

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        """Activations kept for backward besides the part's input, without recomputation."""
        return ()

    def limits(self) -> tuple[Limit, ...]:
        """Sizes that tensor parallelism has to divide."""
        return ()

    def cached(self) -> Cached:
        """Cache per token of context and per sequence during generation."""
        return Cached()
