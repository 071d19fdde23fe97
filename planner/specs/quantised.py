"""Formats in which weights that are not trained are kept: what a matrix takes with its scales, and
what stays in 16 bit.

Matrices of layers, routed experts included, are quantised; embedding, head, norms, biases and
routers are not (`llm_int8_skip_modules` and `modules_to_not_convert` of transformers, and the
16-bit part of published GPTQ and AWQ checkpoints).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.ledger import Array
from planner.specs.names import BaseName

# that GEMMs of 8 bit read as they lie: no library of its own keeps them
EIGHT_BIT: tuple[BaseName, ...] = ("fp8", "fp8-blockwise")
KEPT_WIDE = ("router",)  # products of a layer that no format quantises
_BITS = 8.0  # of a byte


@dataclass(frozen=True)
class BaseFormat:
    """Bytes of a quantised matrix of k inputs and n outputs."""

    title: str
    source: str
    bits: float  # of a weight
    group: int = 0  # weights that share a scale; 0: the whole matrix, or its column
    # whether groups are cut of the matrix as it lies in memory, of the k weights of one output, are
    # square tiles, or are all weights of an output
    of: str = "memory"
    scale: float = 0.0  # bytes
    zero: float = 0.0  # bits of a zero point per group
    second: int = 0  # groups that share a scale of their scales
    second_scale: float = 0.0  # bytes
    per_input: float = 0.0  # bytes per input: the group each belongs to
    table: float = 0.0  # bytes per matrix: values of the codes, offsets
    multiplied: bool = False  # forward multiplies codes, not weights made of them
    # its layers return the type of what they are given, whatever they multiply in
    returns_given: bool = False
    keeps_input: bool = False  # and keep it for backward, which does not read it
    # autocast makes the 16-bit weights, which the matrix then keeps for its gradient of the input
    keeps_made: bool = False
    # bytes read and written per weight by a chain of torch operators that decodes in forward, whose
    # weights autograd keeps for the gradient of the input; 0: a kernel decodes, in both passes
    chained: float = 0.0
    chain_holds: float = 0.0  # bytes per weight at the fullest moment of that chain
    operators: float = 1.0  # that decode a matrix in a pass
    # its layers register codes and scales as buffers, which FSDP and ZeRO-3 do not shard
    buffers: bool = False

    def matrix_bytes(self, k: Array, n: Array, group: int | None = None) -> Array:
        """Bytes of one matrix. group: weights that share a scale, where not the format's own."""
        size = float(group or self.group or 1)
        elements = 1.0 * k * n
        groups = {
            "memory": np.ceil(elements / size),
            "input": np.ceil(k / size) * n,
            "tile": np.ceil(k / size) * np.ceil(n / size),
            "output": 1.0 * n,
            "matrix": 1.0 + 0.0 * elements,
        }[self.of]
        seconds = np.ceil(groups / self.second) if self.second else 0.0
        return (
            elements * self.bits / _BITS
            + groups * (self.scale + self.zero / _BITS)
            + seconds * self.second_scale
            + self.per_input * k
            + self.table
        )


_BNB = (
    "bitsandbytes 0.50 functional.py: quantize_4bit, blocks of 64, absmax in fp32, 16 values of the"
    " codes in fp32"
)
_DOUBLE = (
    _BNB + "; compress_statistics: absmax in 8 bit, a scale in fp32 per 256 of them, an offset and"
    " 256 values of their codes (QLoRA, arXiv 2305.14314 section 3)"
)
_FOUR = BaseFormat("4 bit", _BNB, 4.0, group=64, scale=4.0, table=64.0, returns_given=True)
_GPTQ = BaseFormat(
    "GPTQ",
    "AutoGPTQ and GPTQModel, qlinear_tritonv2.py: packed codes and zeros, fp16 scales per group of"
    " inputs, the group of each input in int32; all four by register_buffer",
    4.0,
    128,
    "input",
    2.0,
    zero=4.0,
    per_input=4.0,
    buffers=True,
)
# forward of AutoGPTQ's qlinear_cuda_old.py and of GPTQModel's torch.py, which train: shift of a
# broadcast int32 to int32, cast to int8 (of 8 bit int16), mask, minus zero point, times scale to
# fp16
_CHAIN_OF_4 = (0.5 + 4.0) + (4.0 + 1.0) + (1.0 + 1.0) + (1.0 + 1.0) + (1.0 + 2.0)
_CHAIN_OF_8 = (1.0 + 4.0) + (4.0 + 2.0) + (2.0 + 2.0) + (2.0 + 2.0) + (2.0 + 2.0)
# five of these, and four of the zero points: shift, cast, mask and one more
CHAIN_OPERATORS = 9.0
_CAST_OF_4, _CAST_OF_8 = 4.0 + 1.0, 4.0 + 2.0  # shifted codes in int32 beside their cast
_TWICE = replace(
    _FOUR,
    operators=3.0,
    source=_DOUBLE,
    scale=1.0,
    second=256,
    second_scale=4.0,
    table=64.0 + 1024.0 + 4.0,
)
BASES: dict[BaseName, BaseFormat] = {
    "fp32": BaseFormat(
        "fp32, as loaded",
        "torch/amp: a weight that needs no gradient is in no cache, and is cast for every GEMM;"
        " dtype of TRL's ModelConfig is float32 by default",
        bits=32.0,
        keeps_made=True,
    ),
    "nf4": replace(_FOUR, title="NF4"),
    "nf4-double": replace(_TWICE, title="NF4, double quantisation"),
    "fp4": replace(_FOUR, title="FP4"),
    "fp4-double": replace(_TWICE, title="FP4, double quantisation"),
    "int8": BaseFormat(
        "LLM.int8()",
        "bitsandbytes 0.50 nn/modules.py: Int8Params, a scale in fp32 per output;"
        " autograd/_functions.py: MatMul8bitLt has its input in ctx.tensors",
        bits=8.0,
        of="output",
        scale=4.0,
        multiplied=True,
        returns_given=True,
        keeps_input=True,
    ),
    "gptq": replace(_GPTQ, title="GPTQ, 4 bit", chained=_CHAIN_OF_4, chain_holds=_CAST_OF_4),
    "gptq-8bit": replace(
        _GPTQ, title="GPTQ, 8 bit", bits=8.0, zero=8.0, chained=_CHAIN_OF_8, chain_holds=_CAST_OF_8
    ),
    "awq": BaseFormat(
        "AWQ, 4 bit",
        "AutoAWQ modules/linear/gemm.py: packed codes and zeros, fp16 scales per group of inputs,"
        " by register_buffer",
        4.0,
        128,
        "input",
        2.0,
        zero=4.0,
        returns_given=True,
        buffers=True,
    ),
    "hqq": BaseFormat(
        "HQQ, 4 bit",
        "mobiusml/hqq core/quantize.py: BaseQuantizeConfig, scale and zero in 16 bit per group",
        4.0,
        64,
        "input",
        2.0,
        zero=16.0,
    ),
    "fp8": BaseFormat(
        "FP8, a scale per tensor",
        "torchao float8 weights and FP8 checkpoints of vLLM: weight_scale in fp32",
        8.0,
        of="matrix",
        scale=4.0,
    ),
    "fp8-blockwise": BaseFormat(
        "FP8, a scale per 128 x 128",
        "DeepSeek-V3 (arXiv 2412.19437 section 3.3): weight_scale_inv in fp32",
        8.0,
        128,
        "tile",
        4.0,
    ),
    "mxfp4": BaseFormat(
        "MXFP4",
        "OCP Microscaling 1.0: an 8-bit exponent per 32; experts of gpt-oss",
        4.0,
        32,
        "input",
        1.0,
    ),
}
