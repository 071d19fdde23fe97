"""Operands of 8 and 4 bit: bytes of a copy with its scales, and bytes moved to make the copies of a
tensor. Recipes: specs.precision."""

from __future__ import annotations

from planner.ledger import Array, formula

_READ = 2.0  # bytes of an element in 16 bit, from which operands are cast


@formula(
    unit="B",
    equation="element + scale / block",
    source=(
        "OCP microscaling formats 1.0 (32 elements share 8 bit); NVFP4: arXiv 2509.25149 (16 share"
        " 8 bit); DeepSeek-V3: arXiv 2412.19437 section 3.3.2 (128 share fp32)"
    ),
)
def operand_bytes(element_bytes: Array, scale_bytes: Array, block: Array) -> Array:
    """Bytes per element of one copy of an operand. block: elements that share a scale; infinite
    where one scale is the whole tensor's."""
    return element_bytes + scale_bytes / block


@formula(
    unit="B",
    equation="N (2 reads + copies operand)",
    source=(
        "own count of the kernels of Transformer Engine (docs/features/low_precision_training at"
        " d0067d0d): every pass reads 16 bit, the last writes the copies"
    ),
)
def cast_bytes(elements: Array, reads: Array, copies: Array, each_bytes: Array) -> Array:
    """Bytes moved to make all copies of a tensor in 8 or 4 bit.

    reads: passes over it in 16 bit. copies: one for the forward or input-gradient GEMM, and one
    for the weight gradient where that reads another. each_bytes: per element of a copy.
    """
    return elements * (_READ * reads + copies * each_bytes)


@formula(
    unit="B", equation="2 N operand", source="own count: a transpose reads and writes every element"
)
def transposed_bytes(elements: Array, each_bytes: Array) -> Array:
    """Bytes moved to transpose a matrix that is in 8 bit already. each_bytes: per element of a
    copy."""
    return 2.0 * elements * each_bytes


@formula(
    unit="1",
    equation="2^-(m + 1)",
    source="IEEE 754 rounding to nearest: half of the last of m stored bits of a number's fraction",
)
def least_kept_update_frac(fraction_bits: Array) -> Array:
    """Smallest update of a number, as a share of its power of two, that adding it does not round
    away. Stored bits: bf16 7, fp16 10, fp32 23."""
    return 2.0 ** -(fraction_bits + 1)
