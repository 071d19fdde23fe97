"""The layers of a model: which kinds there are, what parts each is made of, and in which order.

A stack states them in words: `layers = ["linear + experts", "attention + experts"]` are two layers
of two blocks each. `+` joins blocks, one after the other, each with its own norm; `&` joins parts
of a block that read the same input side by side. A flat decoder is translated here, and nowhere
else.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from planner.specs.base import Names, Spec
from planner.specs.parts import Attention, Latent, Mlp, Moe, Part

if TYPE_CHECKING:
    from planner.specs.model import ModelSpec

FLAT_PARTS = ("attention", "latent", "mlp", "moe")  # names of what the flat fields describe
_SHOWN = 12  # names in an error
Blocks = tuple[tuple[Part, ...], ...]


class Repeat(Spec):
    """Layers in their order, repeated."""

    layers: Names = Field(min_length=1)
    times: int | None = Field(
        default=None, ge=1, le=100_000
    )  # None: until the model has all its layers; the last round may be cut short


@dataclass(frozen=True)
class Kind:
    """Layers that are alike."""

    name: str
    blocks: Blocks
    norms: int  # as wide as the model

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts, in the order of the forward pass."""
        return tuple(part for block in self.blocks for part in block)


@dataclass(frozen=True)
class Layers:
    """Kinds, and which of them every layer is."""

    kinds: tuple[Kind, ...]
    order: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Layers of every kind."""
        found = Counter(self.order)
        return tuple(found[i] for i in range(len(self.kinds)))


@functools.lru_cache(maxsize=512)
def layers_of(model: ModelSpec) -> Layers:
    """The layers of a model, stacked or flat."""
    words = _stacked(model) if model.stack else _flat(model)
    names = tuple(dict.fromkeys(words))
    at = {name: i for i, name in enumerate(names)}
    kinds = tuple(_kind(model, name) for name in names)
    return Layers(kinds, tuple(at[word] for word in words))


def check(model: ModelSpec) -> None:
    """Raises ValueError where a stack names no part or does not make the model's layers."""
    if not model.stack:
        return
    names = [part.name for part in model.parts]
    unnamed = [part.type for part in model.parts if not part.name]
    if unnamed:
        raise ValueError(f"parts: one of type {unnamed[0]} has no name")
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"parts: {twice[0]!r} is the name of two")
    for name in dict.fromkeys(_stacked(model)):
        _kind(model, name)
    used = {word for text in _stacked(model) for block in _words(text) for word in block}
    idle = [name for name in names if name not in used]
    if idle:
        raise ValueError(f"parts: no layer of the stack has {idle[0]!r}")


def untimed(model: ModelSpec) -> str | None:
    """What of a model can be counted but not be timed; None: it can."""
    if model.stack:
        return "a stack of layers that differ"
    if model.mtp:
        return "modules of multi-token prediction"
    if model.latent and model.latent.index:
        return "a sparse index"
    if model.moe and (model.moe.latent or model.moe.zero_experts):
        return "experts of a latent width or that compute nothing"
    return None


def _stacked(model: ModelSpec) -> list[str]:
    out: list[str] = []
    for i, repeat in enumerate(model.stack):
        if repeat.times is not None:
            out += repeat.layers * repeat.times
        elif i + 1 < len(model.stack):
            raise ValueError("stack: times is needed in all but the last entry")
        else:
            rest = max(model.layers - len(out), 0)
            out += (repeat.layers * (rest // len(repeat.layers) + 1))[:rest]
    if len(out) != model.layers:
        raise ValueError(f"stack makes {len(out)} layers, but layers is {model.layers}")
    return out


def _words(text: str) -> list[list[str]]:
    return [[word.strip() for word in block.split("&")] for block in text.split("+")]


def _flat(model: ModelSpec) -> list[str]:
    """The same words for a decoder without a stack."""
    every, sign = model.window_every, "&" if model.parallel_block else "+"
    windowed = model.layers // every if model.attention_window else 0
    out = []
    for layer in range(model.layers):
        short = layer % every == 0 and layer // every < windowed
        mixer = "latent" if model.latent else "window" if short else "attention"
        out.append(f"{mixer} {sign} {'moe' if _has_experts(model, layer) else 'mlp'}")
    return out


def _has_experts(model: ModelSpec, layer: int) -> bool:
    if model.moe is None or layer < model.moe.dense_layers:
        return False
    return (layer - model.moe.dense_layers) % model.moe.every == 0


def _kind(model: ModelSpec, text: str) -> Kind:
    blocks = tuple(tuple(_part(model, word) for word in block) for block in _words(text))
    norms = model.norms_per_block * len(blocks) if model.stack else model.norms_per_layer
    return Kind(text, blocks, norms)


def _part(model: ModelSpec, word: str) -> Part:
    for part in model.parts:
        if part.name == word:
            return part
    if word in FLAT_PARTS or (word == "window" and not model.stack):
        return _flat_part(model, word)
    known = ", ".join([*(part.name for part in model.parts), *FLAT_PARTS][:_SHOWN])
    raise ValueError(f"stack: no part is called {word!r}; known: {known}")


def _flat_part(model: ModelSpec, word: str) -> Part:
    """A part from the flat fields."""
    if word == "mlp":
        _needed(model, word, "ffn_hidden")
        return Mlp(
            ffn_hidden=model.ffn_hidden,
            gated=model.mlp == "gated",
            activation=model.activation,
            bias=model.bias_mlp,
        )
    if word == "moe":
        _needed(model, word, "moe")
        assert model.moe is not None
        return Moe(
            **model.moe.model_dump(exclude={"dense_layers", "every"}),
            gated=model.mlp == "gated",
            activation=model.activation,
            bias=model.bias_mlp,
        )
    _needed(model, word, "heads")
    if word == "latent":
        _needed(model, word, "latent")
        assert model.latent is not None
        shape = {name: getattr(model.latent, name) for name in type(model.latent).model_fields}
        return Latent(**shape, heads=model.heads, bias_out=model.bias_attention_out)
    _needed(model, word, "kv_heads", "head_dim")
    return Attention(
        heads=model.heads,
        kv_heads=model.kv_heads,
        head_dim=model.head_dim,
        window=model.attention_window if word == "window" else None,
        rotary=model.positions == "rotary",
        qk_norm=model.qk_norm,
        bias_qkv=model.bias_qkv,
        bias_out=model.bias_attention_out,
    )


def _needed(model: ModelSpec, word: str, *fields: str) -> None:
    missing = [name for name in fields if not getattr(model, name)]
    if missing:
        raise ValueError(f"stack: a part called {word} needs {missing[0]}, or a part of that name")
