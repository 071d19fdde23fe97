"""The scan of Mamba-2 as its kernels have it, in place of the operators of torch that transformers
falls back to where mamba_ssm is not installed: these keep fp32 copies of B and C per head and the
decays of all pairs of a chunk."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

_NAME = "mamba2_chunk_scan"  # of the function in modules of transformers


class _ChunkScan(torch.autograd.Function):
    """mamba_chunk_scan_combined (state-spaces/mamba@d757aef, mamba_ssm/ops/triton/ssd_combined.py):
    the same products, scores once per group, and the same tensors for backward, which makes
    states and scores again. The kernels' steps between are operators of as many bytes."""

    @staticmethod
    def forward(ctx: Any, chunk: int, *tensors: torch.Tensor) -> torch.Tensor:
        x, dt, a, b, c, d, bias = tensors
        decay = dt.float().cumsum(1)
        values, keys, queries = (_chunks(each, chunk) for each in (x, b, c))
        state = b.shape[-1]
        scores = queries @ keys.mT
        states = (keys[..., :state].mT @ values).neg()  # passed on from chunk to chunk
        out = torch.baddbmm(scores @ values, queries[..., :state], states)
        out = out.view(x.shape[0], -1, *x.shape[2:])[:, : x.shape[1]].to(x.dtype)
        ctx.save_for_backward(out, x, dt, decay, a, b, c, d, bias)
        ctx.chunk = chunk
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _, x, dt, decay, a, b, c, d, bias = ctx.saved_tensors
        decay = decay.neg()
        given, values, keys, queries = (
            _chunks(each.to(x.dtype), ctx.chunk) for each in (gradients[0], x, b, c)
        )
        state = b.shape[-1]
        scores = queries @ keys.mT
        states = (keys[..., :state].mT @ values).neg()
        of_states = (queries[..., :state].mT @ given).neg()
        of_scores = given @ values.mT
        of_x = torch.baddbmm(scores.mT @ given, keys[..., :state], of_states)
        of_b, of_c = of_scores.mT @ queries, of_scores @ keys
        of_b[..., :state] += values @ of_states.mT
        of_c[..., :state] += given @ states.mT
        of_x, of_b, of_c = (
            each.view(x.shape[0], -1, *like.shape[2:])[:, : x.shape[1]]
            for each, like in ((of_x, x), (of_b, b), (of_c, c))
        )
        heads = (decay.sum((0, 1)).to(like.dtype) for like in (a, d, bias))
        of_a, of_d, of_bias = heads
        return None, of_x, decay.to(dt.dtype), of_a, of_b, of_c, of_d, of_bias


def _chunks(x: torch.Tensor, chunk: int) -> torch.Tensor:
    """(chunks of all samples, tokens of a chunk, channels) of (samples, tokens, heads, width)."""
    rest = -x.shape[1] % chunk
    x = nn.functional.pad(x, (0, 0, 0, 0, 0, rest)) if rest else x
    return x.reshape(-1, chunk, x.shape[2] * x.shape[3])


def with_kernels(module: nn.Module) -> None:
    """Gives the classes of a module the scan of their kernels."""
    for place in {type(each).__module__ for each in module.modules()}:
        code = sys.modules[place]
        plain = getattr(code, _NAME, None)
        if plain is not None and not hasattr(plain, "plain"):
            setattr(code, _NAME, _instead_of(plain))


def _instead_of(plain: Any) -> Any:
    """The kernel for tensors without data and a whole sequence, else what was there."""

    def scan(x: torch.Tensor, dt: torch.Tensor, a: torch.Tensor, *args: Any, **words: Any) -> Any:
        again = words.get("initial_states") is not None or words.get("return_final_states")
        given = words.get("D"), words.get("dt_bias")
        if again or not isinstance(x, FakeTensor) or any(each is None for each in given):
            return plain(x, dt, a, *args, **words)
        b, c, *rest = args
        chunk = rest[0] if rest else words["chunk_size"]
        return _ChunkScan.apply(chunk, x, dt, a, b, c, *given)

    setattr(scan, "plain", plain)  # noqa: B010
    return scan
