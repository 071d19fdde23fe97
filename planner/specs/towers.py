"""Towers: layers of a model that read another sequence than its own, or have another width.

The encoder and the decoder of T5, the image and the text of CLIP, the text beside the latents of a
diffusion transformer. What a layer costs is found tower by tower, each as a model of its own; what
a rank holds is counted of the whole model.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from planner.specs.layers import Kind, tower_words
from planner.specs.model import ModelSpec
from planner.specs.parts import Attention, CrossAttention, Part
from planner.specs.plan import Plan
from planner.specs.shape import Repeat

SEQUENCE = ""  # name of the tower that reads the sequence of the request


@dataclass(frozen=True)
class View:
    """A tower, seen as a separate model."""

    name: str
    model: ModelSpec
    seq_len: int  # tokens per sample
    share: float  # of the layers of the whole model


@functools.lru_cache(maxsize=512)
def views(model: ModelSpec, seq_len: int) -> tuple[View, ...]:
    """Towers of a model at this sequence length; the model itself where it has none."""
    if not model.towers:
        return (View(SEQUENCE, model, seq_len, 1.0),)
    known = {tower.name: tower for tower in model.towers}
    parts = tuple(beside(part, model.hidden, seq_len) for part in model.parts)
    out = []
    for name, words in tower_words(model).items():
        tower = known.get(name)
        used = {word.strip() for text in words for word in text.replace("&", "+").split("+")}
        body = model.model_copy(
            update={
                "towers": (),
                "head_tower": SEQUENCE,
                "layers": len(words),
                "hidden": model.hidden if tower is None else tower.hidden or model.hidden,
                "parts": tuple(part for part in parts if part.name in used),
                "stack": (Repeat(layers=tuple(words), times=1),),
            }
        )
        length = seq_len if tower is None else tower.length(seq_len)
        out.append(View(name, body, length, len(words) / model.layers))
    return tuple(out)


def beside(part: Part, hidden: int, seq_len: int) -> Part:
    """The part with tokens and width of the sequence that it reads."""
    if isinstance(part, CrossAttention) and part.source_tokens is None:
        source = {"source_tokens": seq_len, "source_hidden": part.source_hidden or hidden}
        return part.model_copy(update=source)
    if isinstance(part, Attention) and part.joined is not None:
        return part.model_copy(update={"joined": None, "keys": seq_len + part.joined})
    return part


def plan_of(plan: Plan, view: View) -> Plan:
    """The plan as if the tower were all of its model."""
    training = plan.training.model_copy(update={"seq_len": view.seq_len})
    return plan.model_copy(update={"model": view.model, "training": training})


def plans(plan: Plan) -> tuple[tuple[Plan, View], ...]:
    """Every tower as a separate plan."""
    models = views(plan.model, plan.training.seq_len)
    if not plan.model.towers:
        return ((plan, models[0]),)
    return tuple((plan_of(plan, view), view) for view in models)


def head_plan(plan: Plan) -> Plan:
    """The plan of the tower whose tokens the head reads."""
    if not plan.model.towers:
        return plan
    return next(tower for tower, view in plans(plan) if view.name == plan.model.head_tower)


def kind_plan(plan: Plan, kind: Kind) -> tuple[Plan, Kind]:
    """The plan of the tower of a kind of layer, and the kind as it is there."""
    if not plan.model.towers:
        return plan, kind
    encoder = next(encoder for encoder, view in plans(plan) if view.name == kind.tower)
    h, s = plan.model.hidden, plan.training.seq_len
    blocks = tuple(tuple(beside(part, h, s) for part in block) for block in kind.blocks)
    return encoder, replace(kind, blocks=blocks)
