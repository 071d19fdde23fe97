"""Classes of torch's operators, and the sizes that one call of an operator has."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

GEMM, BATCHED, ATTENTION, CONVOLUTION = "gemm", "batched", "attention", "convolution"
# memory-bound classes; chains of the fusable ones are one kernel compiled
FUSABLE = ("elementwise", "copy", "reduction", "softmax", "normalisation")
_CLASSES = {
    "": (  # no kernel
        "detach alias lift_fresh lift t view _unsafe_view reshape empty empty_like empty_strided"
        " new_empty new_empty_strided expand set_ sym_size sym_numel sym_stride _reshape_alias"
        " is_same_size _local_scalar_dense _assert_async _assert_scalar device record_stream"
        " wait_tensor unbind split split_with_sizes chunk"
    ),
    "normalisation": (
        "native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward"
        " native_batch_norm native_batch_norm_backward _fused_rms_norm _fused_rms_norm_backward"
        " cudnn_batch_norm cudnn_batch_norm_backward _batch_norm_with_update"
        " batch_norm_backward rms_norm"
    ),
    "softmax": (
        "_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data logsumexp"
        " nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward"
    ),
    "reduction": (
        "sum mean var var_mean amax amin max min argmax argmin topk sort norm linalg_vector_norm"
        " prod any all std std_mean histc bincount aminmax"
    ),
    "gather": (
        "embedding embedding_dense_backward index index_select index_put index_put_"
        " _index_put_impl_ gather scatter scatter_ scatter_add scatter_add_"
        " index_add index_add_ masked_scatter"
        " roll max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d"
        " avg_pool2d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward"
        " upsample_nearest2d upsample_nearest2d_backward upsample_bilinear2d"
        " upsample_bilinear2d_backward upsample_bicubic2d upsample_bicubic2d_backward col2im im2col"
        " nonzero grid_sampler_2d grid_sampler_2d_backward"
    ),
    "scan": "cumsum cumprod logcumsumexp cummax associative_scan flip",
    "copy": (
        "clone copy_ cat stack _to_copy constant_pad_nd repeat contiguous slice_scatter"
        " select_scatter repeat_interleave slice_backward select_backward"
    ),
}
_CLASS_OF = {name: kind for kind, names in _CLASSES.items() for name in names.split()}
# norms whose statistics cover more than a row that a block of threads keeps: the tensors of an
# image's size are read for sums, and again for what is made of these
_TWICE = "batch_norm", "group_norm"
_GEMMS = ("mm", "addmm", "_grouped_mm", "grouped_mm_fallback")
_BATCHED = ("bmm", "baddbmm")
_ATTENTIONS = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
)


@dataclass
class Call:
    """One operator: numbers grow with batch and length, words do not.

    words: of an attention its mask and window; of a GEMM the parameter that it multiplies with.
    """

    operator: str
    module: str  # path of the innermost module
    kind: str
    backward: bool
    numbers: dict[str, int] = field(default_factory=dict)
    words: dict[str, Any] = field(default_factory=dict)


def kind_of(name: str) -> str:
    """Class of an operator; empty where it launches no kernel."""
    if name in _GEMMS:
        return GEMM
    if name in _BATCHED:
        return BATCHED
    if name in _ATTENTIONS or any(name == f"{each}_backward" for each in _ATTENTIONS):
        return ATTENTION
    if name in ("convolution", "convolution_backward"):
        return CONVOLUTION
    return _CLASS_OF.get(name, "elementwise")


def passes(name: str) -> int:
    """Times that an operator reads its inputs."""
    return 2 if any(norm in name for norm in _TWICE) else 1


def gemm_sizes(name: str, args: tuple[Any, ...]) -> dict[str, int]:
    """Rows, inner width, columns and matrices side by side of a product."""
    left, right = (args[1], args[2]) if name == "addmm" else (args[0], args[1])
    groups = right.shape[0] if right.dim() == _STACKED else 1
    rows = math.prod(left.shape[:-1])
    return {"m": rows, "k": left.shape[-1], "n": right.shape[-1], "groups": groups}


_STACKED = 3  # dimensions of matrices side by side


def batched_sizes(name: str, args: tuple[Any, ...]) -> dict[str, int]:
    """Sizes of a product of activations."""
    left, right = (args[1], args[2]) if name == "baddbmm" else (args[0], args[1])
    return {"batch": left.shape[0], "m": left.shape[1], "k": left.shape[2], "n": right.shape[2]}


_OUTPUT_MASK = 10  # of a convolution's backward: whether input, weight and bias have gradients


def has_input_gradient(args: tuple[Any, ...]) -> bool:
    """Whether the backward of a convolution computes the gradient of its input."""
    return bool(args[_OUTPUT_MASK][0])


def convolution_sizes(args: tuple[Any, ...], output: Any) -> dict[str, int]:
    """Sizes of a convolution as an implicit GEMM: a row per pixel of the output."""
    image, weight, transposed, groups = args[0], args[1], args[6], args[8]
    taps = math.prod(weight.shape[2:])
    inside = image if transposed else output  # a row for every pixel that meets the kernel
    columns = weight.shape[1] if transposed else weight.shape[0] // groups
    inner = (weight.shape[0] // groups if transposed else weight.shape[1]) * taps
    return {
        "m": inside.shape[0] * math.prod(inside.shape[2:]),
        "k": inner,
        "n": columns,
        "groups": groups,
        "taps": taps,
        "read": image.numel(),
    }


_CAUSAL = {"flash": 4, "efficient": 6}  # argument that says whether a mask is causal


def is_causal(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a fused attention has a causal mask."""
    at = _CAUSAL["efficient" if "efficient" in name else "flash"]
    return len(args) > at and bool(args[at])


def attention_sizes(args: tuple[Any, ...]) -> dict[str, int]:
    """Sizes of a fused attention over (batch, heads, tokens, width)."""
    query, key, value = args[:3]
    return {
        "batch": query.shape[0],
        "heads": query.shape[1],
        "kv_heads": key.shape[1],
        "queries": query.shape[2],
        "keys": key.shape[2],
        "head_dim": query.shape[3],
        "value_dim": value.shape[3],
    }
