"""Properties of a model that a target must have and a plan does not price, as what its user fills
in (semantics.toml)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from planner.inputs.readers import read_toml
from planner.specs.decoder import decoder_of
from planner.specs.model import ModelSpec
from planner.specs.parts import Mlp

_TABLE = Path(__file__).with_name("semantics.toml")


def _limited(model: ModelSpec) -> bool:
    plain = decoder_of(model)
    return plain is not None and plain.moe is not None and bool(plain.moe.group_limit)


def _other_gate(model: ModelSpec) -> bool:
    mlps = [part for part in model.parts if isinstance(part, Mlp)]
    return any(part.gated and part.activation != "silu" for part in mlps)


CONDITIONS: dict[str, Callable[[ModelSpec], bool]] = {
    "always": lambda model: True,
    "rotary": lambda model: model.positions == "rotary",
    "experts": lambda model: model.routed is not None,
    "expert groups": _limited,
    "gate other than SiLU": _other_gate,
    "norms after": lambda model: model.norms_per_block > 1,
}


def left_to_you(target: str, model: ModelSpec) -> list[str]:
    """Properties that a target's file of a model leaves to its user, with their arguments."""
    return [
        f"{row[target]}: {row['says']}"
        for row in table().values()
        if target in row and CONDITIONS[row["when"]](model)
    ]


@cache
def table() -> Mapping[str, Any]:
    return read_toml(_TABLE.read_text("utf-8"))
