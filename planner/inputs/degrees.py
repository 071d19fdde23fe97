"""Degrees of parallelism that even layouts can have, before anything is searched."""

from __future__ import annotations

from planner.formulas.divisors import divisors

# tensor parallelism is searched up to this, or up to the NVLink domain: collectives would leave it
LEAST_MAX_TP = 16
# context parallelism is searched where each rank keeps this many tokens: below, its kernels are
# shorter than their launches. Validated runs keep 4,096 at least
TOKENS_PER_CONTEXT_RANK = 512


def stages_of(layers: int, uneven: bool | None) -> list[int]:
    """Numbers of stages that the layers divide into, by themselves or with embedding and head as a
    layer each. uneven: whether stages may differ in layers, for which every number is possible;
    None: powers of two, too."""
    if uneven:
        return list(range(1, layers + 1))
    dealt = () if uneven is False else (1 << i for i in range(layers.bit_length()))
    even = {*divisors(layers), *(p for p in divisors(layers + 2) if 2 * p <= layers + 2)}
    return sorted({*even, *(p for p in dealt if p <= layers)})


def contexts_of(seq_len: int, tokens: int = TOKENS_PER_CONTEXT_RANK) -> list[int]:
    """Context-parallel degrees for sequences of this length, of which each rank keeps so many
    tokens."""
    return [c for c in divisors(seq_len) if c <= max(1, seq_len // tokens)]
