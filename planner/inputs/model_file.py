"""A model TOML that people write: what is standard is inferred, and the answer says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.decoder import NEEDED
from planner.specs.model import ModelSpec
from planner.specs.shape import Shape

FIELD = "--model"
_MULTIPLE = 256  # of which Llama makes the width of a gated MLP a multiple (arXiv 2302.13971, code)
# key of a model TOML -> key of a config.json
_OURS = {
    "num_hidden_layers": "layers",
    "n_layer": "layers",
    "num_layers": "layers",
    "hidden_size": "hidden",
    "n_embd": "hidden",
    "d_model": "hidden",
    "num_attention_heads": "heads",
    "n_head": "heads",
    "num_key_value_heads": "kv_heads",
    "num_query_groups": "kv_heads",
    "intermediate_size": "ffn_hidden",
    "ffn_hidden_size": "ffn_hidden",
    "n_inner": "ffn_hidden",
    "vocab_size": "vocab",
    "max_position_embeddings": "max_positions",
    "n_positions": "max_positions",
    "seq_length": "max_positions",
    "tie_word_embeddings": "tied_embeddings",
    "num_experts": "moe.experts",
    "num_local_experts": "moe.experts",
    "num_experts_per_tok": "moe.experts_per_token",
}


def read(path: Path) -> tuple[ModelSpec, list[str]]:
    """The model of a TOML file, and what was inferred as sentences. Raises PlanError naming all
    that is missing."""
    data = catalog.read_toml(path, FIELD)
    for key in data:
        if key in _OURS:
            raise PlanError(f"{FIELD} {path}", key, f"unknown key; it is {_OURS[key]} here")
    inferred = _inferred(data, path)
    flat = () if "stack" in data else NEEDED  # a stack says itself what its layers are made of
    fields = ModelSpec.model_fields
    keys = dict.fromkeys((*Shape.model_fields, *flat, *fields))
    needed = [name for name in keys if name in flat or fields[name].is_required()]
    if not flat:
        inferred = {name: value for name, value in inferred.items() if name == "name"}
    missing = [name for name in needed if name not in data | inferred and _follows(name, data)]
    if missing and not _is_wrong(data):
        listed = ", ".join(f"{name} {value}" for name, value in inferred.items() if name != "name")
        also = f"; inferred: {listed}" if listed else ""
        raise PlanError(f"{FIELD} {path}", None, f"needs {' and '.join(missing)}, too{also}")
    model = catalog.build(ModelSpec, {**inferred, **data}, FIELD, str(path))
    sentences = [
        f"{path.name}: {name} not given: {value}, {_WHY[name]}"
        for name, value in inferred.items()
        if name in _WHY
    ]
    return model, sentences


_WHY = {
    "kv_heads": "as heads",
    "head_dim": "hidden / heads",
    "ffn_hidden": "8/3 of hidden where the MLP is gated, else 4 times",
}


# what is inferred from what
_FROM = {"kv_heads": ["heads"], "head_dim": ["hidden", "heads"], "ffn_hidden": ["hidden"]}


def _follows(name: str, data: dict[str, Any]) -> bool:
    """Whether all is there that a key would be inferred from, so that it has to be given."""
    return all(key in data for key in _FROM.get(name, ()))


def _is_wrong(data: dict[str, Any]) -> bool:
    """Whether a key is unknown, an error that precedes missing keys."""
    return any(key not in ModelSpec.stated_keys() for key in data)


def _inferred(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """Keys that follow from the given ones, by the convention of most models."""
    out: dict[str, Any] = {"name": path.stem[:200] or "model"}
    hidden, heads = (_count(data, name) for name in ("hidden", "heads"))
    if heads:
        out["kv_heads"] = heads
    if hidden and heads and hidden % heads == 0:
        out["head_dim"] = hidden // heads
    if hidden:
        gated = data.get("mlp", "gated") == "gated"
        wide = 8 * hidden // 3
        out["ffn_hidden"] = -(-wide // _MULTIPLE) * _MULTIPLE if gated else 4 * hidden
    return {name: value for name, value in out.items() if name not in data}


def _count(data: dict[str, Any], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
