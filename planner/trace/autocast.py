"""Mixed precision as torch.autocast has it on a GPU: weights in 32 bit, products in 16.

A trace has no GPU, whose autocast torch would need. The CPU's narrows the same products and
convolutions; what widens on a GPU is listed here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

# "CUDA Ops that can autocast to float32", docs of torch.amp
_WIDE = frozenset(
    [
        "__pow__",
        "__rdiv__",
        "__rpow__",
        "__rtruediv__",
        "binary_cross_entropy_with_logits",
        "cdist",
        "cosine_embedding_loss",
        "cosine_similarity",
        "cross_entropy",
        "cross_entropy_loss",
        "cumprod",
        "cumsum",
        "dist",
        "exp",
        "expm1",
        "group_norm",
        "kl_div",
        "l1_loss",
        "layer_norm",
        "log",
        "log10",
        "log1p",
        "log2",
        "log_softmax",
        "mse_loss",
        "nll_loss",
        "norm",
        "normalize",
        "pow",
        "prod",
        "reciprocal",
        "renorm",
        "rsqrt",
        "smooth_l1_loss",
        "softmax",
        "softmin",
        "softplus",
        "sum",
        "tan",
    ]
)


class _Widening(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _WIDE:
            args, kwargs = tree_map(_wide, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def _wide(x: Any) -> Any:
    narrow = isinstance(x, torch.Tensor) and x.dtype is torch.bfloat16
    return x.float() if narrow else x


@contextlib.contextmanager
def as_on_cuda() -> Iterator[None]:
    """Operators in the types that autocast on CUDA gives them."""
    with torch.autocast("cpu", dtype=torch.bfloat16), _Widening():
        yield
