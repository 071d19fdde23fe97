"""Recipes of training in 8 and 4 bit: what an operand of a GEMM is made of, and what making it
takes.

Formats and passes as Transformer Engine has them (docs/features/low_precision_training of
NVIDIA/TransformerEngine@d0067d0d); rowwise: torchao's float8 training.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Recipe:
    """One way to train with operands of 8 or 4 bit.

    rate: the field of DenseRates whose units multiply them. element, scale: bytes of an element,
    and of the scale that `block` of them share. reads: times that a tensor is read in 16 bit to be
    cast, one of which finds its largest value where scales come of the tensor itself. transposed:
    whether the weight gradient reads a copy of its own on every GPU, since blocks run along the
    inner width; else only on GPUs whose units multiply one layout. kernels: of the casts of a
    tensor. gathered: bytes per parameter in which ZeRO gathers weights that are kept in the format.
    """

    rate: str
    element: float
    scale: float
    block: float
    reads: float
    transposed: bool
    kernels: float
    gathered: float

    def copies(self, architecture: str) -> float:
        """Copies of a tensor that the GEMMs of a layer read, forward and for gradients."""
        return 2.0 if self.transposed or self.transposes(architecture) else 1.0

    def transposes(self, architecture: str) -> bool:
        """Whether the second copy is the first one transposed: units of the GPU multiply one
        layout, and the scale of a tensor serves both."""
        return not self.transposed and architecture in _ONE_LAYOUT


# 8-bit units that only multiply rows by columns, so that gradients need transposed copies
_ONE_LAYOUT = ("ada", "hopper")

RECIPES: dict[str, Recipe] = {
    # scales come of the largest values of steps before, which the cast writes down
    "fp8-delayed": Recipe("fp8", 1.0, 4.0, inf, 1.0, False, 1.0, 1.0),
    # a pass over the tensor finds its largest value first
    "fp8-tensorwise": Recipe("fp8", 1.0, 4.0, inf, 2.0, False, 2.0, 1.0),
    # each copy has scales along its own inner width, so that each is cast from 16 bit by itself
    "fp8-rowwise": Recipe("fp8", 1.0, 4.0, inf, 2.0, True, 2.0, 2.0),
    # 1 x 128 values of activations and 128 x 128 of weights share an fp32 scale
    "fp8-blockwise": Recipe("fp8", 1.0, 4.0, 128.0, 1.0, True, 1.0, 2.0),
    # 32 values share an exponent of 8 bit; Megatron gathers in 16 bit, into gradient buffers
    # (reuse_grad_buf_for_mxfp8_param_ag)
    "mxfp8": Recipe("mxfp8", 1.0, 1.0, 32.0, 1.0, True, 1.0, 2.0),
    # 16 values share an 8-bit scale, a tensor an fp32 one; the copy for the weight gradient is
    # rotated by a Hadamard transform in the kernel that casts it
    "nvfp4": Recipe("nvfp4", 0.5, 1.0, 16.0, 2.0, True, 3.0, 2.0),
}
# what a GPU without a format lacks, by the field of DenseRates
NEEDS = {
    "fp8": "matrix units of 8 bit came with Ada, Hopper and CDNA 3",
    "mxfp8": (
        "units that scale blocks of 32 came with Blackwell's parts for data centres and CDNA 4;"
        " fp8-blockwise is the recipe of blocks on Hopper"
    ),
    "nvfp4": "units of 4 bit for training came with Blackwell's parts for data centres",
}
# recipes whose units for scaled blocks are software on these architectures, or not there at all
REFUSED: dict[str, tuple[str, ...]] = {"fp8-blockwise": ("ada", "blackwell-geforce")}


def is_low(precision: str) -> bool:
    """Whether operands of GEMMs have 8 or 4 bit."""
    return precision == "fp8" or precision in RECIPES
