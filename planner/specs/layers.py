"""The layers of a model: which kinds there are, what parts each is made of, and in which order."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from planner.specs.parts import (
    Attended,
    Attention,
    Batched,
    Core,
    CrossAttention,
    Latent,
    Mlp,
    Moe,
    Part,
    Scan,
    Traced,
    routed_of,
)
from planner.specs.parts.base import WIDTHS, Limit
from planner.specs.shape import Shape, words_of

_SHOWN = 12  # names in an error
Blocks = tuple[tuple[Part, ...], ...]


@dataclass(frozen=True)
class Kind:
    """Layers that are alike."""

    name: str
    blocks: Blocks
    norms: int  # as wide as the model
    tower: str = ""

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:
        """All parts, in the order of the forward pass."""
        return tuple(part for block in self.blocks for part in block)


@dataclass(frozen=True)
class Layers:
    """Kinds, and which of them every layer is."""

    kinds: tuple[Kind, ...]
    order: tuple[int, ...]
    module: tuple[int, ...]  # kinds of the layers of a module of multi-token prediction

    @functools.cached_property
    def counts(self) -> tuple[int, ...]:
        """Layers of every kind."""
        counted = Counter(self.order)
        return tuple(counted[i] for i in range(len(self.kinds)))


@functools.lru_cache(maxsize=512)
def layers_of(model: Shape) -> Layers:
    """The layers of a model."""
    words = layer_words(model)
    names = tuple(dict.fromkeys(words))
    at = {name: i for i, name in enumerate(names)}
    kinds = tuple(_kind(model, word, tower) for tower, word in names)
    module = tuple(at["", word] for word in model.mtp_layers) or (at[words[-1]],)
    return Layers(kinds, tuple(map(at.__getitem__, words)), module)


def tower_words(model: Shape) -> dict[str, list[str]]:
    """The layers of every tower, in the words of the stack."""
    out: dict[str, list[str]] = {}
    for tower, word in layer_words(model):
        out.setdefault(tower, []).append(word)
    return out


@functools.lru_cache(maxsize=512)
def memory_kinds(model: Shape) -> Layers:
    """Layers grouped by what differs in memory; attention masks do not."""
    return _told_apart(layers_of(model), masks=False)


@functools.lru_cache(maxsize=512)
def timed_kinds(model: Shape) -> Layers:
    """Layers grouped by what differs in compute, independent of their names."""
    return _told_apart(layers_of(model), masks=True)


def _told_apart(layers: Layers, masks: bool) -> Layers:
    holding = [_bare(kind, masks) for kind in layers.kinds]
    distinct = tuple(dict.fromkeys(holding))
    first = [holding.index(content) for content in distinct]
    at = [distinct.index(content) for content in holding]
    order, module = (tuple(at[i] for i in each) for each in (layers.order, layers.module))
    return Layers(tuple(layers.kinds[i] for i in first), order, module)


def _bare(kind: Kind, masks: bool) -> tuple[object, ...]:
    unmasked = {"window": None, "chunk": None, "mask": "causal", "rotary": True}

    def bare(part: Part) -> Part:
        left_out = {} if masks or not isinstance(part, Attention) else unmasked
        return part.model_copy(update={**left_out, "name": ""})

    bare_blocks = tuple(tuple(bare(part) for part in block) for block in kind.blocks)
    return bare_blocks, kind.norms, kind.tower


@dataclass(frozen=True)
class Mix:
    """A group of layers (one kind, or all of a model) and the composition of their mean."""

    name: str
    layers: int
    parts: tuple[tuple[Part, int], ...]  # every part, and how often over all of them
    norms: float  # as wide as the model, of the mean layer
    blocks: float  # of the mean layer; parts side by side are one
    sums: float  # outputs that ranks of tensor parallelism add up: of a traced block one per pair

    @functools.cached_property
    def cores(self) -> tuple[tuple[Core, int], ...]:
        """Every core operator, and how often over all layers."""
        out: dict[Core, int] = {}
        for part, count in self.parts:
            for core in part.core():
                out[core] = out.get(core, 0) + count
        return tuple(out.items())

    @functools.cached_property
    def attended(self) -> tuple[tuple[Attended, int], ...]:
        """The cores that score keys."""
        return tuple((core, n) for core, n in self.cores if isinstance(core, Attended))

    @functools.cached_property
    def scans(self) -> tuple[tuple[Scan, int], ...]:
        """The cores that carry a state from token to token."""
        return tuple((core, n) for core, n in self.cores if isinstance(core, Scan))

    @functools.cached_property
    def expert_share(self) -> float:
        """Share of layers with experts."""
        return sum(n for part, n in self.parts if routed_of(part, 1)) / self.layers

    def mean_of(self, value: Callable[[Part], float]) -> float:
        """Sum of a value over the parts of the mean layer."""
        return sum(value(part) * n for part, n in self.parts) / self.layers


def _mixed(name: str, kinds: tuple[Kind, ...], counts: tuple[int, ...]) -> Mix:
    parts: dict[Part, int] = {}
    for kind, count in zip(kinds, counts, strict=True):
        for part in kind.parts:
            parts[part] = parts.get(part, 0) + count
    layers, counted = sum(counts), tuple(zip(kinds, counts, strict=True))
    norms = sum(kind.norms * n for kind, n in counted) / layers
    blocks = sum(len(kind.blocks) * n for kind, n in counted) / layers
    sums = sum(_sums(block) * n for kind, n in counted for block in kind.blocks) / layers
    return Mix(name, layers, tuple(parts.items()), norms, blocks, sums)


def _sums(block: tuple[Part, ...]) -> int:
    traced = [part for part in block if isinstance(part, Traced)]
    return sum(gemm.times for part in traced for gemm in part.rows()) if traced else 1


@functools.lru_cache(maxsize=512)
def mix_of(model: Shape) -> Mix:
    """All layers of a model."""
    layers = layers_of(model)
    return _mixed("mean", layers.kinds, layers.counts)


@functools.lru_cache(maxsize=2048)
def mix_of_kind(kind: Kind, count: int) -> Mix:
    """Mix of `count` layers of one kind."""
    return _mixed(kind.name, (kind,), (count,))


def last_shares(layers: Layers, last: int | None) -> tuple[float, ...]:
    """Share of each kind's layers that is among the last `last` layers; None: all layers."""
    order = layers.order if last is None else layers.order[-last:]
    return tuple(order.count(i) / n for i, n in enumerate(layers.counts))


def timed_shares(model: Shape) -> tuple[float, ...]:
    """Share of the layers in each kind of `timed_kinds`."""
    return tuple(count / model.layers for count in timed_kinds(model).counts)


def parts_of(model: Shape) -> tuple[tuple[Part, int], ...]:
    """Every part that the model has, and how often over all layers."""
    return mix_of(model).parts


@functools.lru_cache(maxsize=512)
def experts_of(model: Shape) -> tuple[Moe | None, int]:
    """The experts of a model, and the layers that have them."""
    each = [(routed_of(part, model.hidden), count) for part, count in parts_of(model)]
    moes = [(moe, count) for moe, count in each if moe is not None]
    return (moes[0][0], sum(count for _, count in moes)) if moes else (None, 0)


def cores_of(model: Shape) -> tuple[tuple[Core, int], ...]:
    """Every core operator of the model, and how often over all layers."""
    return mix_of(model).cores


def attended_of(model: Shape) -> tuple[tuple[Attended, int], ...]:
    """The cores that score keys."""
    return mix_of(model).attended


def scans_of(model: Shape) -> tuple[tuple[Scan, int], ...]:
    """The cores that carry a state from token to token."""
    return mix_of(model).scans


@functools.lru_cache(maxsize=512)
def of_samples(model: Shape) -> bool:
    """Whether it is trained on samples as a whole and not to continue a text: those whose tokens
    all see each other (BERT, ViT), several towers (T5, CLIP), convolutions. Products of traced
    blocks have no mask and decide nothing."""
    cores = [core for core, _ in cores_of(model) if not isinstance(core, Batched)]
    if not cores and any(isinstance(part, Traced) for part, _ in parts_of(model)):
        return bool(getattr(model, "sample", ""))
    whole = all(isinstance(core, Attended) and core.mask == "full" for core in cores)
    return whole or bool(model.towers)


@functools.lru_cache(maxsize=512)
def modules_of(model: Shape) -> frozenset[str]:
    """Modules of the layers that can be recomputed or offloaded by themselves, by the names of
    specs.names."""
    parts = [part for part, _ in parts_of(model)]
    latent = any(isinstance(part, Latent) for part in parts)
    attends = latent or any(isinstance(part, Attention | CrossAttention) for part in parts)
    dense, moe = (any(isinstance(part, kind) for part in parts) for kind in (Mlp, Moe))
    shared = any(isinstance(part, Moe) and part.shared_ffn_hidden > 0 for part in parts)
    present = {
        ("core_attn", "qkv_linear", "attn_proj", "qkv_proj", "context", "out_proj"): attends,
        ("mla_up_proj",): latent,
        ("layernorm",): latent or moe,
        ("mlp",): dense,
        ("moe", "moe_act", "expert_fc1"): moe,
        ("shared_experts",): shared,
        ("mlpwi", "mlpwo"): dense or moe,
        ("attn_norm", "mlp_norm", "decoder_layer_input"): True,
    }
    return frozenset(name for names, has in present.items() if has for name in names)


@functools.lru_cache(maxsize=512)
def limits_of(model: Shape) -> tuple[Limit, ...]:
    """Sizes that tensor parallelism has to divide."""
    every = (limit for part, _ in parts_of(model) for limit in part.limits())
    return tuple(dict.fromkeys(every))


def shared_heads(model: Shape) -> int:
    """The most ranks over which all heads can be divided without copies."""
    counts = (
        limit.count for limit in limits_of(model) if not limit.repeats and limit.what not in WIDTHS
    )
    return math.gcd(*counts) or model.hidden


def check(model: Shape) -> None:
    """Raises ValueError where a stack names no part or does not make the model's layers."""
    unknown = [word for word in model.mtp_layers if ("", word) not in layer_words(model)]
    if unknown:
        raise ValueError(f"mtp_layers: no layer of the stack is {unknown[0]!r}")
    names = [part.name for part in model.parts]
    unnamed = [part.type for part in model.parts if not part.name]
    if unnamed:
        raise ValueError(f"parts: one of type {unnamed[0]} has no name")
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"parts: {twice[0]!r} is the name of two")
    stated = list(dict.fromkeys(layer_words(model)))
    kinds = [_kind(model, text, tower) for tower, text in stated]
    used = {word for _, text in stated for block in words_of(text) for word in block}
    _check_towers(model, [tower for tower, _ in stated])
    parts = [part for kind in kinds for part in kind.parts]
    experts = [moe for part in parts if (moe := routed_of(part, model.hidden))]
    if len({part.model_copy(update={"name": ""}) for part in experts}) > 1:
        raise ValueError("stack: experts of one kind per model are planned, and two are named")
    idle = [name for name in names if name not in used]
    if idle:
        raise ValueError(f"parts: no layer of the stack has {idle[0]!r}")


def _check_towers(model: Shape, used: list[str]) -> None:
    known = [tower.name for tower in model.towers]
    twice = [name for name, times in Counter(known).items() if times > 1]
    if twice:
        raise ValueError(f"towers: {twice[0]!r} is the name of two")
    for name in [*used, model.head_tower]:
        if name and name not in known:
            raise ValueError(f"no tower is called {name!r}; known: {', '.join(known) or 'none'}")
    if not known:
        return
    idle = [name for name in ["", *known] if name not in used]
    if idle:
        raise ValueError(f"towers: no layer of the stack uses {idle[0] or 'the sequence'!r}")
    if any(isinstance(core, Scan) for core, _ in cores_of(model)):
        raise ValueError("towers: layers that carry a state along a sequence have none")
    if model.mtp or any(routed_of(part, 1) for part, _ in parts_of(model)):
        raise ValueError("towers: experts and multi-token prediction are planned without them")


def layer_words(model: Shape) -> list[tuple[str, str]]:
    """Tower and words of every layer."""
    out: list[tuple[str, str]] = []
    for i, repeat in enumerate(model.stack):
        words = [(repeat.tower, word) for word in repeat.layers]
        if repeat.times is not None:
            out += words * repeat.times
        elif i + 1 < len(model.stack):
            raise ValueError("stack: times is needed in all but the last entry")
        else:
            rest = max(model.layers - len(out), 0)
            out += (words * (rest // len(words) + 1))[:rest]
    if len(out) != model.layers:
        raise ValueError(f"stack makes {len(out)} layers, but layers is {model.layers}")
    return out


def _kind(model: Shape, text: str, tower: str) -> Kind:
    blocks = tuple(tuple(_part(model, word) for word in block) for block in words_of(text))
    return Kind(text, blocks, model.norms_per_block * len(blocks), tower)


def _part(model: Shape, word: str) -> Part:
    for part in model.parts:
        if part.name == word:
            return part
    known = ", ".join([part.name for part in model.parts][:_SHOWN])
    raise ValueError(f"stack: no part is called {word!r}; known: {known or 'none'}")
