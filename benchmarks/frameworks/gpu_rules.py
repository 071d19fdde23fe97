"""Rules of CUDA where torch's CPU code, which traces without a device, has others.

Fake tensors on a CPU select the CPU's kernels. Four of its choices differ from a GPU's in what
they keep: the lists of autocast, attention, RMSNorm, and the masks of dropout.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

import torch

_HEADER = "include/ATen/autocast_mode.h"
_WIDE, _WIDE_BY_TYPE = "AT_FORALL_FP32", "AT_FORALL_FP32_SET_OPT_DTYPE"
_RMS_NORM = torch.nn.functional.rms_norm
_NARROW = (torch.bfloat16, torch.float16)


def listed(macro: str) -> list[str]:
    """Operators of a list of autocast on CUDA, from the header of the installed torch."""
    path = os.path.join(os.path.dirname(torch.__file__), _HEADER)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    body = re.search(rf"#define {macro}\(_\)((?:.*\\\n)*.*)", text)
    if body is None:
        raise SystemExit(f"torch {torch.__version__}: {_HEADER} has no {macro}; install the pins")
    names = re.findall(r"_\((\w+)(?:, (\w+))?\)", body[1])
    return [".".join(filter(None, name)) for name in names]


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default", None)


def _widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in _NARROW:
        return value.float()
    return [_widened(each) for each in value] if isinstance(value, list | tuple) else value


def _kernel(operator: Any, by_type: bool) -> Any:
    below = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def wide(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(below):
            if not by_type:
                named = {name: _widened(value) for name, value in kwargs.items()}
                return operator(*(_widened(value) for value in args), **named)
            narrow = isinstance(args[0], torch.Tensor) and args[0].dtype in _NARROW
            typed = {i for i, arg in enumerate(operator._schema.arguments) if arg.name == "dtype"}
            stated = kwargs.get("dtype") or any(len(args) > i and args[i] for i in typed)
            if narrow and not stated:
                kwargs["dtype"] = torch.float32
                args = tuple(value for i, value in enumerate(args) if i not in typed)
            return operator(*args, **kwargs)

    return wide


@contextlib.contextmanager
def autocast_lists() -> Iterator[None]:
    """Autocast of the CPU with CUDA's lists of operators in fp32."""
    library = torch.library.Library("aten", "IMPL")
    for macro, by_type in ((_WIDE, False), (_WIDE_BY_TYPE, True)):
        for name in listed(macro):
            operator = _operator(name)
            key = torch._C.DispatchKey.AutocastCPU
            if operator is not None and not operator.has_kernel_for_dispatch_key(key):
                library.impl(operator, _kernel(operator, by_type), "AutocastCPU")
    try:
        yield
    finally:
        library._destroy()


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """scaled_dot_product_attention of CUDA: FlashAttention in 16 bit without a mask, the
    memory-efficient kernel else, which has no grouped queries."""
    aten = torch.ops.aten
    if torch.is_autocast_enabled("cpu"):
        query, key, value = (x.to(torch.get_autocast_dtype("cpu")) for x in (query, key, value))
        attn_mask = None if attn_mask is None else attn_mask.to(query.dtype)
    if attn_mask is None and query.dtype in _NARROW:
        return aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
    if enable_gqa:
        times = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(times, 1) for x in (key, value))
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        zeros = torch.zeros_like(attn_mask, dtype=query.dtype)
        attn_mask = zeros.masked_fill_(attn_mask.logical_not(), float("-inf"))
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale
    )[0]


def _dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    """The fused kernel of CUDA, whose mask is a byte per element."""
    return torch.native_dropout(input, p, True)[0] if p and training else input


class _FusedNorm(torch.autograd.Function):
    """RMSNorm in one kernel, as aten._fused_rms_norm of CUDA: backward needs the input and a scale
    per row. Values do not matter where bytes are counted."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        scale = torch.empty_like(input[..., :1], dtype=torch.float32)
        ctx.save_for_backward(input, weight, scale)
        return torch.empty_like(input)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        input, weight, _ = ctx.saved_tensors
        return torch.empty_like(input), torch.empty_like(weight)


def _rms_norm(
    input: torch.Tensor,
    normalized_shape: Any,
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """Fused where input and weight have one type, as in rms_norm of torch's layer_norm.cpp."""
    if weight is None or weight.dtype is not input.dtype:
        return _RMS_NORM(input, normalized_shape, weight, eps)
    normed: torch.Tensor = _FusedNorm.apply(input, weight)
    return normed


@contextlib.contextmanager
def rules() -> Iterator[None]:
    """All of them."""
    functional = torch.nn.functional
    before = functional.scaled_dot_product_attention, functional.dropout
    functional.scaled_dot_product_attention, functional.dropout = _attention, _dropout
    functional.rms_norm = _rms_norm
    try:
        with autocast_lists():
            yield
    finally:
        functional.scaled_dot_product_attention, functional.dropout = before
        functional.rms_norm = _RMS_NORM
