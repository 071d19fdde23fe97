"""Parameter counts, leaf by leaf.

Each leaf says where it lives (`place`) and how it is divided (`shard`), so memory, FLOP and traffic
all start here. Counts are exact integers. What a layer has, its parts say (specs.parts).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from planner.specs.layers import Kind, layers_of
from planner.specs.model import ModelSpec
from planner.specs.parts import LayerEmbedding, Stream, Tensor
from planner.specs.parts.base import Shard, replicated

Place = Literal["layer", "first", "last", "mtp"]

MTP_NORMS = 3  # of the next word's embedding, of the hidden state, before the shared head


@dataclass(frozen=True)
class Leaf(Tensor):
    """One parameter tensor (or a few of one kind): elements per occurrence, occurrences in the
    model."""

    place: Place = "layer"
    times: int = 1


def stream_of(model: ModelSpec, kind: Kind | None = None) -> Stream:
    """The residual stream of a model, or of the tower of a kind of layer."""
    widths = {tower.name: tower.hidden for tower in model.towers}
    width = widths.get(kind.tower) if kind else None
    return Stream(width or model.hidden, model.norm_bias)


def layer_tensors(model: ModelSpec, kind: Kind) -> tuple[Tensor, ...]:
    """Every tensor of a layer of a kind."""
    of = stream_of(model, kind)
    norms = replicated("norm/layer", kind.norms * of.norm(of.hidden) * model.norm_weight)
    declared = [tensor for part in kind.parts for tensor in part.tensors(of)]
    return tuple(tensor for tensor in (norms, *declared) if tensor.count)


@functools.lru_cache(maxsize=512)
def parameter_leaves(model: ModelSpec) -> tuple[Leaf, ...]:
    """Every trainable tensor of the model, as Hugging Face transformers counts them (a tied head
    counts once). Tensors that layers of several kinds have are one leaf."""
    layers = layers_of(model)
    times: dict[Tensor, int] = {}
    for kind, count in zip(layers.kinds, layers.counts, strict=True):
        for tensor in layer_tensors(model, kind):
            times[tensor] = times.get(tensor, 0) + count
    inner = [_leaf(tensor, "layer", n) for tensor, n in times.items()]
    leaves = (*_placed(_first(model), "first"), *inner, *_placed(_last(model), "last"))
    return (*leaves, *_mtp(model, [layers.kinds[kind] for kind in layers.module]))


def _leaf(tensor: Tensor, place: Place, times: int = 1) -> Leaf:
    return Leaf(**vars(tensor), place=place, times=times)


def _placed(tensors: Iterable[Tensor], place: Place) -> Iterable[Leaf]:
    return (_leaf(tensor, place) for tensor in tensors if tensor.count)


def _first(model: ModelSpec) -> Iterable[Tensor]:
    """Tables of words, positions and layers."""
    of, h = stream_of(model), model.hidden
    yield Tensor("embedding/word", model.padded_vocab * h, matmul=False)
    if model.positions == "learned":
        yield replicated("embedding/position", (model.position_rows or model.max_positions) * h)
    yield replicated("embedding/norm", of.norm(h) * model.embedding_norm)
    layers = layers_of(model)
    layered = [
        (part, count)
        for kind, count in zip(layers.kinds, layers.counts, strict=True)
        for part in kind.parts
        if isinstance(part, LayerEmbedding)
    ]
    if layered:
        yield Tensor(
            "embedding/layers", sum(p.vocab * p.width * n for p, n in layered), matmul=False
        )
        yield Tensor("embedding/layers_in", h * sum(p.width * n for p, n in layered), "replicated")
        yield replicated("embedding/layers_norm", of.norm(layered[0][0].width))


def _last(model: ModelSpec) -> Iterable[Tensor]:
    """Final norm and head."""
    yield replicated("head/norm", stream_of(model).norm(model.hidden) * model.final_norm)
    rows = model.head_rows
    whole: Shard = "tensor" if model.outputs is None else "replicated"
    yield Tensor("head/logits", rows * model.hidden * (not model.tied_embeddings), whole)
    yield Tensor("head/bias", rows * model.bias_head, matmul=False)


def _mtp(model: ModelSpec, kinds: Iterable[Kind]) -> Iterable[Leaf]:
    """Modules of multi-token prediction: a projection of the hidden state and the next word's
    embedding, layers, by default one as the last, and norms; embedding and head are shared
    (DeepSeek-V3, arXiv 2412.19437 section 2.2)."""
    if not model.mtp:
        return ()
    h, of = model.hidden, stream_of(model)
    tensors = (Tensor("mtp/projection", 2 * h * h),)
    norms = (replicated("mtp/norms", MTP_NORMS * of.norm(h)),)
    inner = (tensor for kind in kinds for tensor in layer_tensors(model, kind))
    all_of = (*tensors, *norms, *inner)
    return tuple(_leaf(tensor, "mtp", model.mtp) for tensor in all_of)


def parameter_count(model: ModelSpec) -> int:
    """All parameters of the model, exact."""
    return sum(leaf.count * leaf.times for leaf in parameter_leaves(model))


def active_parameter_count(model: ModelSpec) -> int:
    """Parameters that take part in the forward pass of one token (top-k of the experts), exact."""
    return sum(
        leaf.count * leaf.active_frac[0] // leaf.active_frac[1] * leaf.times
        for leaf in parameter_leaves(model)
    )
