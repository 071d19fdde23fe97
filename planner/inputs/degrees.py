"""Degrees of parallelism that even layouts can have, before anything is searched."""

from __future__ import annotations

from planner.formulas.divisors import divisors

# tensor parallelism is searched up to this, or up to the NVLink domain: collectives would leave it
LEAST_MAX_TP = 16
# context parallelism is searched where each rank keeps this many tokens of a sequence, of shorter
# sequences up to this many ranks: within a node heads are shared out, and what a rank computes at
# once are the tokens of a whole micro-batch. Choices; validated runs keep 4,096 at least
_TOKENS_PER_RANK = 512
_SHORTEST_RANK, _MOST_OF_SHORT = 64, 8


def stages_of(layers: int, uneven: bool | None) -> list[int]:
    """Numbers of stages that the layers divide into, by themselves or with embedding and head as a
    layer each. uneven: whether stages may differ in layers, for which every number is possible;
    None: powers of two, too."""
    if uneven:
        return list(range(1, layers + 1))
    dealt = () if uneven is False else (1 << i for i in range(layers.bit_length()))
    even = {*divisors(layers), *(p for p in divisors(layers + 2) if 2 * p <= layers + 2)}
    return sorted({*even, *(p for p in dealt if p <= layers)})


def longest_context(seq_len: int) -> int:
    """Ranks of context parallelism that are searched at most for sequences of this many tokens."""
    return max(1, seq_len // _TOKENS_PER_RANK, min(seq_len // _SHORTEST_RANK, _MOST_OF_SHORT))


def contexts_of(seq_len: int, most: int) -> list[int]:
    """Context-parallel degrees up to `most` that sequences of this many tokens divide into."""
    return [c for c in divisors(seq_len) if c <= most]
