"""Kernels of CUDA in place of torch's on a CPU, while a model is traced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import nn

from planner.trace.record import Recorder
from planner.trace.values import shapes

_NARROW = (torch.bfloat16, torch.float16)
WORDS = "dpplan"  # the attention that is registered with transformers


class _Current:
    """The recorder of the step that runs."""

    recorder: Recorder | None = None


def attach(recorder: Recorder) -> None:
    """Attention of transformers hands its words to this recorder."""
    _Current.recorder = recorder


_WORDS = ("attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """scaled_dot_product_attention as CUDA has it: FlashAttention in 16 bit without a mask, else
    the memory-efficient kernel, which has no grouped queries."""
    words = dict(zip(_WORDS, args, strict=False)) | kwargs
    attn_mask, dropout_p = words.get("attn_mask"), words.get("dropout_p", 0.0)
    is_causal, scale = words.get("is_causal", False), words.get("scale")
    aten = torch.ops.aten
    shape = query.shape
    if query.dim() != _DIMENSIONS:
        query, key, value = (_four(x) for x in (query, key, value))
    if query.shape[0] != key.shape[0]:  # queries that are learned, once for all samples
        batch = max(query.shape[0], key.shape[0])
        query, key, value = (x.expand(batch, -1, -1, -1) for x in (query, key, value))
        shape = query.shape
    alike = query.shape[-1] == value.shape[-1]  # else no FlashAttention of torch's
    if attn_mask is None and query.dtype in _NARROW and alike:
        out = aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
        return out.reshape(*shape[:-1], value.shape[-1])
    if query.shape[1] != key.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(times, 1) for x in (key, value))
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        zeros = torch.zeros_like(attn_mask, dtype=query.dtype)
        attn_mask = zeros.masked_fill_(attn_mask.logical_not(), float("-inf"))
    if attn_mask is not None:
        attn_mask = attn_mask.to(query.dtype).expand(*query.shape[:3], key.shape[2])
    out = aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale
    )[0]
    return out.reshape(*shape[:-1], value.shape[-1])


_DIMENSIONS = 4  # batch, heads, tokens, width


def _four(x: torch.Tensor) -> torch.Tensor:
    """(batch, heads, tokens, width) of (tokens, width), (batch, tokens, width), or more."""
    while x.dim() < _DIMENSIONS:
        x = x.unsqueeze(max(x.dim() - 2, 0))
    return x.reshape(-1, *x.shape[-3:])


def _dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    """The fused kernel of CUDA, whose mask is a byte per element."""
    return torch.native_dropout(input, p, True)[0] if p and training else input


class _FusedNorm(torch.autograd.Function):
    """RMSNorm in one kernel, as CUDA's rms_norm has it (layer_norm.cpp): backward needs the input
    and a scale per row. The kernel of a layer norm, which moves the same bytes, stands for it."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        norm = torch.ops.aten.native_layer_norm
        out, _, scale = norm(input, weight.shape, weight, None, 1e-6)
        ctx.save_for_backward(input, weight, scale)
        return cast(torch.Tensor, out)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        input, weight, scale = ctx.saved_tensors
        norm, wanted = torch.ops.aten.native_layer_norm_backward, [True, True, False]
        given = gradients[0], input, weight.shape, scale, scale, weight, None, wanted
        of_input, of_weight, _ = norm(*given)
        return of_input, of_weight


_RMS_NORM = torch.nn.functional.rms_norm


def _rms_norm(
    input: torch.Tensor,
    normalized_shape: Any,
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """Fused where input and weight have one type."""
    if weight is None or weight.dtype is not input.dtype:
        return _RMS_NORM(input, normalized_shape, weight, eps)
    normed: torch.Tensor = _FusedNorm.apply(input, weight)
    return normed


@contextlib.contextmanager
def as_cuda() -> Iterator[None]:
    """Kernels that CUDA has, where torch's on a CPU keep other tensors; no weight gets values."""
    functional = torch.nn.functional
    new: list[tuple[Any, str, Any]] = [
        (functional, "scaled_dot_product_attention", _attention),
        (functional, "dropout", _dropout),
        (functional, "rms_norm", _rms_norm),
        # some of them draw until what is drawn suits
        *((nn.init, x, _as_it_is) for x in dir(nn.init) if x.endswith("_") and x[0] != "_"),
    ]
    old = [(module, name, getattr(module, name)) for module, name, _ in new]
    try:
        for module, name, function in new:
            setattr(module, name, function)
        yield
    finally:
        for module, name, function in old:
            setattr(module, name, function)


def _as_it_is(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """A weight without data needs no initial values."""
    return tensor


def dtype_of(autocast: bool) -> torch.dtype:
    """Type of weights and inputs."""
    return torch.float32 if autocast else torch.bfloat16


@contextlib.contextmanager
def without_data(autocast: bool = False) -> Iterator[None]:
    """Tensors made inside have no data and the type of `dtype_of`; kernels are CUDA's."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype_of(autocast))
    try:
        with shapes(), as_cuda():
            yield
    finally:
        torch.set_default_dtype(default)


def register() -> None:
    """An attention of transformers that builds no mask and hands its words to the recorder."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    def attend(
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        causal = kwargs.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        causal = bool(causal) and query.shape[2] > 1 and query.shape[2] == key.shape[2]
        if _Current.recorder is not None:
            _Current.recorder.mask = {"window": kwargs.get("sliding_window")}
        dropout, scaling = kwargs.get("dropout", 0.0), kwargs.get("scaling")
        out = _attention(query, key, value, None, dropout, causal, scaling)
        return out.transpose(1, 2).contiguous(), None

    AttentionInterface.register(WORDS, attend)
    AttentionMaskInterface.register(WORDS, lambda *args, **kwargs: None)
