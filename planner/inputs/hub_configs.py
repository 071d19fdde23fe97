"""Configurations of models of the Hugging Face Hub that ship with the planner, so that they are
planned by name without a network (planner/data/hub_configs.jsonl: a model, where its values are
from, and the keys of its config.json that shape it, on each line)."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

_FILE = Path(__file__).parents[1] / "data" / "hub_configs.jsonl"


class Shipped(NamedTuple):
    """A configuration: keys of a config.json, and their source."""

    config: dict[str, Any]
    source: str


@functools.cache
def shipped() -> dict[str, Shipped]:
    """Every configuration, by org/name."""
    lines = _FILE.read_text(encoding="utf-8").splitlines()
    rows = map(json.loads, lines)
    return {row["id"]: Shipped(row["config"], row["source"]) for row in rows}


def named(name: str) -> tuple[str, Shipped] | None:
    """The configuration of org/name in any case, with its name as the Hub writes it."""
    spelled = {each.lower(): each for each in shipped()}.get(name.lower())
    return None if spelled is None else (spelled, shipped()[spelled])
