"""Configurations of models of the Hugging Face Hub that ship with the planner, so that they are
planned by name without a network (planner/data/hub_configs.jsonl). Each line has a model, where its
values are from, and the keys of its config.json that shape it, or the name of another model of the
Hub that has the same shape."""

from __future__ import annotations

import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

_FILE = Path(__file__).parents[1] / "data" / "hub_configs.jsonl"


class Shipped(NamedTuple):
    """A configuration. config: keys of a config.json, none where alike is given; source: where they
    are from; alike: org/name of a model of the catalogue or of this file that has the same
    shape."""

    config: dict[str, Any]
    source: str
    alike: str = ""


@functools.cache
def shipped() -> dict[str, Shipped]:
    """Every configuration, by org/name."""
    lines = _FILE.read_text(encoding="utf-8").splitlines()
    rows = map(json.loads, lines)
    return {
        row["id"]: Shipped(row.get("config", {}), row["source"], row.get("as", "")) for row in rows
    }


@functools.cache
def _spelled() -> dict[str, str]:
    """Names as the Hub writes them, by their lower case; and those that a single organisation has,
    or has with keys of its own, also without it, as the Hub's first models were named."""
    whole = {name.lower(): name for name in shipped()}
    keyed = {name.lower(): name for name, row in shipped().items() if not row.alike}
    return _bare(whole) | _bare(keyed) | whole


def _bare(names: dict[str, str]) -> dict[str, str]:
    """The names that are unique without their organisation, by what is left."""
    models = Counter(name.rpartition("/")[2] for name in names)
    bare = ((name.rpartition("/")[2], spelled) for name, spelled in names.items())
    return {model: spelled for model, spelled in bare if models[model] == 1}


def named(name: str) -> tuple[str, Shipped] | None:
    """The configuration of org/name in any case, with its name as the Hub writes it. Also of a name
    without its organisation, as in distilgpt2."""
    spelled = _spelled().get(name.lower())
    return None if spelled is None else (spelled, shipped()[spelled])
