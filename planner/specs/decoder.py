"""A decoder whose layers are alike except for windows and experts, as a model TOML states it flat:
heads, widths, one table for latent attention and one for experts. `expanded` reads its keys into
parts and a stack; `decoder_of` states such a model flat again, as launch files do."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from planner.specs.base import Names, Spec
from planner.specs.layers import layer_words
from planner.specs.parts import Attention, Latent, LatentAttention, Mlp, Moe, Part, Routing
from planner.specs.parts.attention import QkNorm
from planner.specs.parts.base import MAX_POSITIONS, MOST_LAYERS
from planner.specs.parts.mlp import Activation
from planner.specs.shape import Repeat, Shape, repeats, words_of

NEEDED = ("heads", "kv_heads", "head_dim", "ffn_hidden")  # what a plain decoder has to state
Positional = Literal["learned", "rotary", "alibi", "none"]
_SHARED = ("layers", "positions", "stack", "mtp_layers")  # keys that every model has
_NAMES = ("attention", "latent", "mlp", "moe")  # what a stack calls the parts that are stated flat


class Experts(Routing):
    """The mixture-of-experts part of a model."""

    dense_layers: int = Field(default=0, ge=0, le=100_000)  # the first layers with a dense MLP
    every: int = Field(
        default=1, ge=1, le=100_000
    )  # 1: each later layer has experts; 2: every second one


class Decoder(Spec):
    """Keys of a model TOML for a decoder whose layers share one attention and one MLP."""

    layers: int = Field(ge=1, le=MOST_LAYERS)
    positions: Positional = "rotary"
    stack: tuple[Repeat, ...] = Field(default=(), strict=False)
    mtp_layers: Names = ()
    # needed without a stack; in a stack what its layers call attention and mlp
    heads: int = Field(default=0, ge=0, le=100_000)
    kv_heads: int = Field(default=0, ge=0, le=100_000)
    head_dim: int = Field(default=0, ge=0, le=10_000_000)
    ffn_hidden: int = Field(
        default=0, ge=0, le=10_000_000
    )  # width of the dense MLP (of the dense layers, if there are experts)
    mlp: Literal["plain", "gated"] = "gated"
    activation: Activation = "silu"
    norms_per_layer: int = Field(default=2, ge=1, le=4)  # 1: shared by a parallel block; 4: Gemma 2
    qk_norm: QkNorm = "none"  # one weight per head dimension, or per projected width
    parallel_block: bool = False  # attention and MLP read the same input
    bias_qkv: bool = False
    bias_attention_out: bool = False
    bias_mlp: bool = False
    attention_window: int | None = Field(
        default=None, ge=1, le=MAX_POSITIONS
    )  # sliding window in tokens
    window_every: int = Field(
        default=1, ge=1, le=100_000
    )  # 2: every second layer is windowed (Gemma 2)
    latent: LatentAttention | None = None
    moe: Experts | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        missing = [name for name in NEEDED if not getattr(self, name)]
        if missing and not self.stack:
            raise ValueError(f"{missing[0]} is needed: a model without a stack is a plain decoder")
        if self.kv_heads and self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}")
        if self.moe and self.moe.dense_layers > self.layers:
            raise ValueError(f"dense_layers {self.moe.dense_layers} exceeds layers {self.layers}")
        if self.latent and (self.bias_qkv or self.qk_norm != "none"):
            raise ValueError("latent attention has no bias_qkv and no qk_norm; leave them out")
        if not self.stack and self.norms_per_layer % self.blocks:
            raise ValueError(
                f"norms_per_layer {self.norms_per_layer} is shared by two blocks; give 2 or 4"
            )
        return self

    @property
    def blocks(self) -> int:
        """Residual blocks of a layer, each with its own norms."""
        return 1 if self.parallel_block else 2

    @property
    def words(self) -> list[str]:
        """Every layer in the words of a stack."""
        layers, sign = self.layers, "&" if self.parallel_block else "+"
        mixers = ["latent" if self.latent else "attention"] * layers
        if self.attention_window and not self.latent:
            ends = layers // self.window_every * self.window_every
            mixers[: ends : self.window_every] = ["window"] * (ends // self.window_every)
        widths = ["mlp"] * layers
        if self.moe:
            places = range(min(self.moe.dense_layers, layers), layers, self.moe.every)
            widths[places.start :: places.step] = ["moe"] * len(places)
        return [f"{mixer} {sign} {width}" for mixer, width in zip(mixers, widths, strict=True)]

    def part(self, word: str) -> Part:
        """The part that a layer calls by this word. Raises ValueError where its keys are not
        given."""
        mlp: dict[str, Any] = {
            "name": word,
            "gated": self.mlp == "gated",
            "activation": self.activation,
            "bias": self.bias_mlp,
        }
        if word == "mlp":
            self._needs(word, "ffn_hidden")
            return Mlp(ffn_hidden=self.ffn_hidden, **mlp)
        if word == "moe":
            self._needs(word, "moe")
            assert self.moe is not None
            return Moe(**self.moe.model_dump(exclude={"dense_layers", "every"}), **mlp)
        self._needs(word, "heads")
        if word == "latent":
            self._needs(word, "latent")
            shape = {name: getattr(self.latent, name) for name in LatentAttention.model_fields}
            return Latent(name=word, heads=self.heads, bias_out=self.bias_attention_out, **shape)
        self._needs(word, "kv_heads", "head_dim")
        return Attention(
            name=word,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            window=self.attention_window if word == "window" else None,
            rotary=self.positions == "rotary",
            qk_norm=self.qk_norm,
            bias_qkv=self.bias_qkv,
            bias_out=self.bias_attention_out,
        )

    def _needs(self, word: str, *fields: str) -> None:
        missing = [name for name in fields if not getattr(self, name)]
        if missing:
            raise ValueError(
                f"stack: a part called {word} needs {missing[0]}, or a part of that name"
            )

    def parts(self, words: list[str]) -> tuple[Part, ...]:
        """The parts of layers in these words, in the order they come up."""
        used = [
            word for layer in dict.fromkeys(words) for block in words_of(layer) for word in block
        ]
        return tuple(self.part(word) for word in dict.fromkeys(used))


FLAT = tuple(name for name in Decoder.model_fields if name not in _SHARED)


def expanded(data: Mapping[str, Any], needed: list[str], known: list[str]) -> dict[str, Any]:
    """The keys of a model with parts and a stack in place of those that state them flat. Keys that
    are missing or unknown are left for the model to name. Raises ValidationError."""
    rest = {name: value for name, value in data.items() if name not in FLAT}
    if any(name not in data for name in needed) or any(name not in known for name in rest):
        return rest
    stated = {name: data[name] for name in data if name in Decoder.model_fields}
    decoder = Decoder.model_validate(stated)
    if not decoder.stack:
        beside = next((name for name in ("parts", "towers") if data.get(name)), None)
        if beside:
            raise ValueError(f"{beside} need a stack: add [[stack]] with the layers made of them")
        if decoder.mtp_layers:
            raise ValueError(
                "mtp_layers name layers of [[stack]], and this model has none: add it, or leave"
                " mtp_layers out"
            )
        words = decoder.words
        norms = decoder.norms_per_layer // decoder.blocks
        plain = {"parts": decoder.parts(words), "stack": repeats(words), "norms_per_block": norms}
        return rest | plain
    own_parts = data.get("parts", ())
    if not isinstance(own_parts, list | tuple):
        return rest
    named = [_name(part) for part in own_parts]
    layers = [layer for repeat in decoder.stack for layer in repeat.layers]
    used = {
        word
        for layer in [*layers, *decoder.mtp_layers]
        for block in words_of(layer)
        for word in block
    }
    flat = tuple(decoder.part(word) for word in _NAMES if word in used and word not in named)
    return {**rest, "parts": (*own_parts, *flat)} if flat else rest


def _name(part: object) -> object:
    return part.get("name") if isinstance(part, dict) else getattr(part, "name", None)


@functools.lru_cache(maxsize=512)
def decoder_of(model: Shape) -> Decoder | None:
    """The decoder that states a model flat; None where its layers are more than that."""
    parts = {part.name: part for part in model.parts}
    if model.towers or model.mtp_layers or not parts.keys() <= {*_NAMES, "window"}:
        return None
    mixer = parts.get("window", parts.get("attention", parts.get("latent")))
    wide = parts.get("mlp", parts.get("moe"))
    if not isinstance(mixer, Attention | Latent) or not isinstance(wide, Mlp | Moe):
        return None
    words = [text for _, text in layer_words(model)]
    fields: dict[str, Any] = {
        "layers": model.layers,
        "heads": mixer.heads,
        "bias_attention_out": mixer.bias_out,
        "ffn_hidden": wide.ffn_hidden,
        "mlp": "gated" if wide.gated else "plain",
        "activation": wide.activation,
        "bias_mlp": wide.bias,
        "parallel_block": "&" in words[0],
        "norms_per_layer": model.norms_per_block * (1 if "&" in words[0] else 2),
    }
    if isinstance(mixer, Latent):
        latent = {name: getattr(mixer, name) for name in LatentAttention.model_fields}
        fields |= {"kv_heads": mixer.heads, "head_dim": mixer.value_head_dim}
        fields["latent"] = LatentAttention(**latent)
    else:
        fields |= {name: getattr(mixer, name) for name in ("kv_heads", "head_dim", "qk_norm")}
        fields |= {"bias_qkv": mixer.bias_qkv, "attention_window": mixer.window}
        fields["positions"] = "rotary" if mixer.rotary else "none"
        if mixer.window:
            fields["window_every"] = _step([word.startswith("window") for word in words])[1]
    experts = parts.get("moe")
    if isinstance(experts, Moe):
        first, step = _step([word.endswith("moe") for word in words])
        routing = {name: getattr(experts, name) for name in Routing.model_fields}
        fields["moe"] = Experts(**routing, dense_layers=first, every=step)
    try:
        decoder = Decoder(**fields)
        same = decoder.words == words and {*decoder.parts(words)} == {*parts.values()}
    except ValueError:  # of more norms than a decoder has
        return None
    return decoder if same else None


def _step(present: list[bool]) -> tuple[int, int]:
    """The first of the places, and from one to the next."""
    places = [i for i, here in enumerate(present) if here] or [0]
    alone = 1 if places[0] + 1 == len(present) else len(present)
    return places[0], places[1] - places[0] if len(places) > 1 else alone
