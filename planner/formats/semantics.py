"""Properties of a model that its training needs, by target: carried by the files, or left to their
user (semantics.toml)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from planner.formats.target import Target
from planner.inputs.readers import read_toml
from planner.specs.decoder import Decoder, decoder_of
from planner.specs.model import ModelSpec
from planner.specs.parts import Mlp

_TABLE = Path(__file__).with_name("semantics.toml")


def _limited(model: ModelSpec) -> bool:
    plain = decoder_of(model)
    return plain is not None and plain.moe is not None and bool(plain.moe.group_limit)


def _other_gate(model: ModelSpec) -> bool:
    mlps = [part for part in model.parts if isinstance(part, Mlp)]
    return any(part.gated and part.activation != "silu" for part in mlps)


def _plain(model: ModelSpec, holds: Callable[[Decoder], bool]) -> bool:
    """Whether a model that is a plain decoder has a property."""
    plain = decoder_of(model)
    return plain is not None and holds(plain)


CONDITIONS: dict[str, Callable[[ModelSpec], bool]] = {
    "always": lambda model: True,
    "rotary": lambda model: model.positions == "rotary",
    "experts": lambda model: model.routed is not None,
    "expert groups": _limited,
    "gate other than SiLU": _other_gate,
    "norms after": lambda model: (
        model.norms_per_block > 1 and not _plain(model, lambda m: m.parallel_block)
    ),
    "parallel block": lambda model: _plain(model, lambda m: m.parallel_block),
    "norms of queries": lambda model: _plain(model, lambda m: m.qk_norm == "per_head"),
    "norms of queries over heads": lambda model: _plain(model, lambda m: m.qk_norm == "full"),
    "layer norm": lambda model: model.norm == "layernorm",
    "bias of queries": lambda model: _plain(model, lambda m: m.bias_qkv),
    "plain ReLU": lambda model: _plain(model, lambda m: m.activation == "relu"),
    "squared ReLU": lambda model: _plain(model, lambda m: m.activation == "relu2"),
    "plain MLP": lambda model: _plain(model, lambda m: m.mlp == "plain"),
    "other biases": lambda model: _plain(model, lambda m: m.bias_mlp or m.bias_attention_out),
    "untied embeddings": lambda model: not model.tied_embeddings,
}


def left_to_you(target: Target, model: ModelSpec) -> list[str]:
    """Properties that a target's files of a model leave to its user, with their arguments."""
    if target.names(model):
        return []
    if not spells(target):
        return [f"the path of the model: none of the Hub's has the name {model.name}"]
    return [
        f"{row[target.kind]}: {row['says']}"
        for row in table().values()
        if target.kind in row and CONDITIONS[row["when"]](model)
    ]


def spells(target: Target) -> bool:
    """Whether a target's files can have the widths of a model in place of its name."""
    return any(target.kind in (*row, *row.get("carried", ())) for row in table().values())


@cache
def table() -> Mapping[str, Any]:
    return read_toml(_TABLE.read_text("utf-8"))
