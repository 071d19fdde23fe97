"""Records of a trace: regions of a module, and the memory of its tensors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from planner.trace.classes import Call
from planner.trace.divide import NO_SOURCE, WHOLE, Division, Sources

OUTSIDE = ""  # region of what is in no block
COUNTED_BYTES = 2  # of an element of the compute precision, as bytes moved are counted


@dataclass
class Region:
    """Operators of a block, or of what runs between two blocks."""

    name: str
    module: str
    parameters: int = 0
    calls: list[Call] = field(default_factory=list)
    saved: int = 0  # elements in the compute precision
    saved_bytes: int = 0  # others
    fused_saved: int = 0  # the same where a compiler fuses chains and makes values again
    fused_saved_bytes: int = 0
    frozen_saved: int | None = None  # the same as `saved` with frozen weights; None: not known
    frozen_saved_bytes: int = 0
    enters: int = 0  # elements of the first input
    leaves: int = 0  # elements of the first output
    # of what is saved, by how ranks of tensor parallelism have it
    shares: dict[str, Counter[str]] = field(default_factory=dict)
    undivided: str = ""  # why ranks cannot share it
    # operators of activations, and how many elements each acts along, or joins and cuts
    along: list[tuple[str, str, tuple[int, ...]]] = field(default_factory=list)

    def add(self, ranks: str, name: str, size: int) -> None:
        """Counts a share of what `name` counts."""
        if ranks != WHOLE:
            self.shares.setdefault(ranks, Counter())[name] += size


@dataclass
class Recorded:
    """A step: regions in the order of the forward pass."""

    regions: list[Region]
    parameters: int
    owner: dict[str, int]  # region whose parameter a name is
    division: Division


@dataclass
class Chain:
    """Operators that follow each other; one kernel where a compiler fuses them."""

    region: int
    backward: bool
    entering: dict[int, Storage] = field(default_factory=dict)
    made: list[Storage] = field(default_factory=list)
    again: int = 0  # bytes that norms read a second time


@dataclass
class Storage:
    """A tensor's memory: who wrote it, and who reads it."""

    region: int
    chain: int
    size: int
    compute: bool = False  # whether it has the compute precision
    readers: set[int] = field(default_factory=set)  # chains
    saved: bool = False
    saved_in: int = 0  # region that keeps it
    again: list[Storage] | None = None  # what it is made of again in backward
    sources: Sources = NO_SOURCE
    read_by: set[int] = field(default_factory=set)  # GEMMs
    chosen: bool = False  # whole numbers and masks that follow from a router's choice
    copies: int = 0  # rows that are copies of tokens for experts
