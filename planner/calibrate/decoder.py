"""The decoder that verification trains, and its operators one by one as calibration times them: the
same code runs in both."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from planner.calibrate.cases import Case

_BASE = 10000.0  # of the rotary frequencies, Su et al. 2021


def rotations(
    tokens: int, width: int, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of every position, (tokens, width)."""
    frequencies = _BASE ** (-torch.arange(0, width, 2, device=device).float() / width)
    angles = torch.outer(torch.arange(tokens, device=device).float(), frequencies).repeat(1, 2)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotated(x: torch.Tensor, where: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotary positions on (batch, heads, tokens, width)."""
    half = x.shape[-1] // 2
    return x * where[0] + torch.cat((-x[..., half:], x[..., :half]), -1) * where[1]


def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * up


def split_heads(x: torch.Tensor, width: int) -> torch.Tensor:
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Attention(nn.Module):
    """Causal self-attention; the number of heads follows from the widths, so a tensor-parallel part
    of it works alike."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        h = case.hidden
        self.width, self.rotary = h // case.heads, case.family == "llama"
        self.q, self.k, self.v, self.o = (nn.Linear(h, h, bias=False) for _ in range(4))

    def forward(
        self, x: torch.Tensor, where: tuple[torch.Tensor, torch.Tensor] | None
    ) -> torch.Tensor:
        q, k, v = (split_heads(project(x), self.width) for project in (self.q, self.k, self.v))
        if where is not None and self.rotary:
            q, k = rotated(q, where), rotated(k, where)
        out: torch.Tensor = self.o(attention(q, k, v).transpose(1, 2).flatten(2))
        return out


class Mlp(nn.Module):
    """Gated (three GEMMs) or plain (two)."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.gate = nn.Linear(case.hidden, case.ffn, bias=False) if case.family == "llama" else None
        self.up = nn.Linear(case.hidden, case.ffn, bias=False)
        self.down = nn.Linear(case.ffn, case.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = F.gelu(self.up(x)) if self.gate is None else gated(self.gate(x), self.up(x))
        out: torch.Tensor = self.down(inner)
        return out


def norm(case: Case) -> nn.Module:
    return nn.RMSNorm(case.hidden) if case.family == "llama" else nn.LayerNorm(case.hidden)


class Layer(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2, self.mlp = (
            norm(case),
            Attention(case),
            norm(case),
            Mlp(case),
        )
        self.again = case.recompute == "full"

    def _once(
        self, x: torch.Tensor, where: tuple[torch.Tensor, torch.Tensor] | None
    ) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), where)
        out: torch.Tensor = x + self.mlp(self.norm2(x))
        return out

    def forward(
        self, x: torch.Tensor, where: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> torch.Tensor:
        out: torch.Tensor = (
            checkpoint(self._once, x, where, use_reentrant=False)
            if self.again
            else self._once(x, where)
        )
        return out


class Decoder(nn.Module):
    """Some layers of the decoder; the first stage embeds, the last one has the final norm and the
    head."""

    def __init__(self, case: Case, layers: int, first: bool = True, last: bool = True) -> None:
        super().__init__()
        self.case = case
        self.embed = nn.Embedding(case.vocab, case.hidden) if first else None
        self.positions = (
            nn.Embedding(case.seq, case.hidden) if first and case.family == "gpt" else None
        )
        self.layers = nn.ModuleList(Layer(case) for _ in range(layers))
        self.norm = norm(case) if last else None
        self.head = nn.Linear(case.hidden, case.vocab, bias=False) if last else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embed is not None:
            x = self.embed(x)
            if self.positions is not None:
                x = x + self.positions(torch.arange(x.shape[1], device=x.device))
        where = None
        if self.case.family == "llama":
            where = rotations(x.shape[1], self.case.hidden // self.case.heads, x.device, x.dtype)
        for layer in self.layers:
            x = layer(x, where)
        return x if self.norm is None or self.head is None else self.head(self.norm(x))


def loss_of(logits: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), words.flatten())
