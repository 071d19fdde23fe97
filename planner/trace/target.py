"""Target of a trace: a module, and its inputs by samples and tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Target:
    """A module, and inputs of it for a number of samples and tokens."""

    build: Callable[[int, int], tuple[nn.Module, Any]]
    rebuilds: bool = False  # the module belongs to the inputs of one size
    length: int | None = None  # tokens that are traced at most; None: there are none
    positions: int = 1  # tokens that it reads at most
    least: int = 0  # tokens of a sample's images and sounds, which any length has
    chunk: int = 256  # tokens by which traced lengths differ at least, if there is room
    stride: int | None = None  # the same where code loops over tokens, of any room
    images: int | None = None  # tokens of the image of a sample beside its text
    title: str = ""
    source: str = ""
    sample: str = ""
    pixels: int | None = None  # of a side of a token of an image
    frames: int | None = None  # of a token of a clip, after the first
    native: int | None = None  # tokens of the images that it was made for
    otherwise: Target | None = None  # where it cannot be traced at several sizes
