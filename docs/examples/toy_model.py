"""A model of its author's own: blocks that mix tokens by a convolution, then an MLP.

`build` returns the module and inputs of it; `dpplan trace docs/examples/toy_model.py:build` counts
what the module does. Nothing is computed: only sizes matter, so that inputs may be zeros.
"""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A depthwise convolution over tokens near by, and an MLP, on the residual stream."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Conv1d(width, width, kernel_size=7, padding=3, groups=width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = self.mix(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.down(functional.gelu(self.up(mixed)))


class Toy(nn.Module):
    """Twelve blocks between a table of words and a head."""

    def __init__(self, words: int = 32_000, width: int = 1024, depth: int = 12) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.table(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """The module, and two sequences of 2,048 words."""
    return Toy(), (torch.zeros(2, 2048, dtype=torch.long),)
