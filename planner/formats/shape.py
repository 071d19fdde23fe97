"""The model that a recipe states by its widths: one of the catalogue, or written out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.decoder import decoder_of
from planner.specs.model import ModelSpec, stated

_FIELD = "--model"
# widths that tell models apart; what a recipe leaves out is not compared
_SHAPE = ("layers", "heads", "kv_heads", "head_dim", "ffn_hidden")
_OF_EXPERTS = ("experts", "experts_per_token", "ffn_hidden")
_PADDING = 1024  # words at most by which a vocabulary is padded
_NEEDED = ("layers", "hidden", "heads")
_OF_STACK = ("layers", "hidden")  # of a model whose layers are written out
_FFN_FACTOR = 4  # width of an MLP over the hidden width where a program states none
_GATED = 8 / 3  # of a gated MLP, likewise
_ASSUMED_VOCABULARY = 128_000  # words where neither the files nor their tokenizer say it: a choice


def model_of(fields: Mapping[str, Any], named: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The option `model` that a recipe states, {} where it states none, and notes about it.

    fields: of a model; its experts' fields begin with `moe.`, latent attention's with `latent.`;
    named: the model that the recipe names instead.
    """
    if named is not None:
        return {"model": named}, ()
    needed = _OF_STACK if fields.get("stack") else _NEEDED
    if missing := [name for name in needed if not fields.get(name)]:
        left = f"the files do not say {' and '.join(missing)} of the model: give --model"
        return {}, (left,) if fields else ()
    words, note = _vocabulary(fields)
    full = {**fields, "vocab": words or _ASSUMED_VOCABULARY}
    model = _stacked(full) if fields.get("stack") else _spec(full)
    same = _catalogued(model, words is not None)
    if same is not None:
        return {"model": same.name}, (f"the model has the shape of {same.title or same.name}",)
    notes = ["the model is not in the catalogue: read from its widths", *note]
    return {"model": written(model)}, tuple(notes)


def _vocabulary(fields: Mapping[str, Any]) -> tuple[int | None, list[str]]:
    """Words of the vocabulary: as stated, else of the catalogue's model of this name, else None
    with the assumption."""
    if fields.get("vocab"):
        return fields["vocab"], []
    owners = catalog.owners("models")
    named = str(fields.get("vocab_of", "")).lower()
    if named in owners:
        known = catalog.load("models", ModelSpec, owners[named])
        return known.vocab, [f"vocabulary: {known.vocab:,} words, as {known.title} has them"]
    note = f"vocabulary: not in the files, {_ASSUMED_VOCABULARY:,} words assumed; give --model"
    return None, [note]


def written(model: ModelSpec) -> str:
    """A model as a text that --model reads."""
    fields = stated(model, exclude_defaults=True, exclude_none=True)
    return json.dumps({name: value for name, value in fields.items() if value}, sort_keys=True)


def _stacked(fields: Mapping[str, Any]) -> ModelSpec:
    """A model whose layers are written out, which have their widths themselves."""
    plain = {name: value for name, value in fields.items() if "." not in name and value is not None}
    plain.pop("vocab_of", None)
    plain.setdefault("name", f"{plain['layers']}-layers-{plain['hidden']}-wide")
    return catalog.build(ModelSpec, plain, _FIELD, "of the files")


def _spec(fields: Mapping[str, Any]) -> ModelSpec:
    plain = {name: value for name, value in fields.items() if "." not in name and value is not None}
    plain.pop("vocab_of", None)
    layers, hidden, heads = (plain[name] for name in _NEEDED)
    for name in _NEEDED:
        if not isinstance(plain[name], int):
            raise PlanError(_FIELD, plain[name], f"is not a whole number of {name}: give --model")
    plain.setdefault("kv_heads", heads)
    plain.setdefault("head_dim", hidden // heads)
    gated = plain.get("mlp", "plain") == "gated"
    plain.setdefault("ffn_hidden", int(hidden * (_GATED if gated else _FFN_FACTOR)))
    for part in ("moe", "latent"):
        inside = {
            name.removeprefix(f"{part}."): value
            for name, value in fields.items()
            if name.startswith(f"{part}.") and value is not None
        }
        experts = inside.get("experts", 0)
        if part == "moe" and isinstance(experts, int) and experts > 1:
            plain["moe"] = {"ffn_hidden": plain["ffn_hidden"], "experts_per_token": 2, **inside}
        elif part == "latent" and inside:
            plain["latent"] = inside
    plain.setdefault("name", f"{layers}-layers-{hidden}-wide")
    return catalog.build(ModelSpec, plain, _FIELD, "of the files")


def _catalogued(model: ModelSpec, says_words: bool) -> ModelSpec | None:
    """The catalogue's model of these widths; the vocabulary may be padded, or not be stated."""
    ours = decoder_of(model)
    for known in catalog.load_all("models", ModelSpec):
        theirs = decoder_of(known)
        if ours is None or theirs is None or known.hidden != model.hidden:
            continue
        if any(getattr(theirs, name) != getattr(ours, name) for name in _SHAPE):
            continue
        if (theirs.moe is None) != (ours.moe is None) or (theirs.latent is None) != (
            ours.latent is None
        ):
            continue
        if theirs.moe and ours.moe:
            pairs = ((getattr(theirs.moe, n), getattr(ours.moe, n)) for n in _OF_EXPERTS)
            if any(his != other for his, other in pairs):
                continue
        words = not says_words or known.vocab <= model.vocab < known.vocab + _PADDING
        if theirs.mlp == ours.mlp and known.positions == model.positions and words:
            return known
    return None
