"""The layers of a model as they are stated: sizes, parts, and the stack of layers made of them.

A stack is in words: `layers = ["linear + experts", "attention + experts"]` are two layers of two
blocks each. `+` joins blocks, one after the other, each with its own norm; `&` joins parts of a
block that read the same input side by side.
"""

from typing import Any

from pydantic import Field

from planner.specs.base import Names, Spec
from planner.specs.parts import AnyPart
from planner.specs.parts.base import MAX_POSITIONS, MOST_LAYERS, MaybeWidth

_PERIOD = 64  # layers after which a pattern is looked for to repeat
_PREFIX = 16  # layers before it that may be others
_SUFFIX = 2  # and after it


class Repeat(Spec):
    """Layers in their order, repeated."""

    layers: Names = Field(min_length=1)
    times: int | None = Field(
        default=None, ge=1, le=100_000
    )  # None: until the model has all its layers; the last round may be cut short
    tower: str = Field(default="", max_length=100)  # whose layers they are; "": of the sequence


class Tower(Spec):
    """Layers whose samples have a number of tokens of their own."""

    name: str = Field(min_length=1, max_length=100)
    tokens: int = Field(ge=1, le=MAX_POSITIONS)  # per sample
    with_sequence: bool = False  # concatenated with the tokens of the sequence
    hidden: int | None = MaybeWidth  # None: the model's

    def length(self, seq_len: int) -> int:
        """Tokens per sample, given the sequence length."""
        return self.tokens + seq_len * self.with_sequence


class Shape(Spec):
    """Composition of the layers of a model."""

    layers: int = Field(ge=1, le=MOST_LAYERS)
    # of a model of samples, elements of a whole one
    hidden: int = Field(ge=1, le=1_000_000_000)
    parts: tuple[AnyPart, ...] = Field(default=(), strict=False)  # of the layers, by name
    stack: tuple[Repeat, ...] = Field(default=(), strict=False)  # the layers, in order
    towers: tuple[Tower, ...] = Field(default=(), strict=False)  # beside the tower of the sequence
    head_tower: str = ""  # whose tokens the head reads
    norms_per_block: int = Field(default=1, ge=0, le=4)  # 2: before and after each
    mtp: int = Field(default=0, ge=0, le=100)  # modules of multi-token prediction
    mtp_layers: Names = ()  # of one module, in the words of the stack; none: one as the last layer


def words_of(text: str) -> list[list[str]]:
    """Names of the parts of a layer, block by block."""
    return [[word.strip() for word in block.split("&")] for block in text.split("+")]


def repeats(words: list[str]) -> list[dict[str, Any]]:
    """The shortest way to say the words: a few first ones, a pattern that repeats, and a few last
    ones, which may differ by what only they have."""
    if (pattern := _pattern(words)) is not None:
        first, period = pattern
        return [*_runs(words[:first]), {"layers": words[first : first + period]}]
    for last in range(1, min(_SUFFIX, len(words) - 1) + 1):
        if (pattern := _pattern(words[:-last])) is not None:
            first, period = pattern
            times = (len(words) - last - first) // period
            rest = words[first + times * period :]
            layers = words[first : first + period]
            return [*_runs(words[:first]), {"layers": layers, "times": times}, *_runs(rest)]
    return _runs(words)


def _pattern(words: list[str]) -> tuple[int, int] | None:
    """Start and length of the pattern that repeats to the end."""
    letters = {word: chr(i) for i, word in enumerate(dict.fromkeys(words))}
    text, n = "".join(letters[word] for word in words), len(words)  # compared at once
    for first in range(min(_PREFIX, n)):
        for period in range(1, min(_PERIOD, (n - first) // 2) + 1):
            if text[first + period :] == text[first : n - period]:
                return first, period
    return None


def _runs(words: list[str]) -> list[dict[str, Any]]:
    """Consecutive layers that are alike, as one entry each."""
    runs: list[tuple[str, int]] = []
    for word in words:
        if runs and runs[-1][0] == word:
            runs[-1] = (word, runs[-1][1] + 1)
        else:
            runs.append((word, 1))
    return [{"layers": [word], "times": times} for word, times in runs]
