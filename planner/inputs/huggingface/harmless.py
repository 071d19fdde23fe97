"""Keys of a config.json that change neither a tensor nor an operation counted here, and what is not
read of types (planner/data/hf_keys.toml)."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from planner.inputs.readers import read_toml

_FILE = Path(__file__).parents[2] / "data" / "hf_keys.toml"
_LONGEST = 100  # characters of a key that is looked at


@cache
def _table() -> dict[str, Any]:
    return read_toml(_FILE.read_text("utf-8"))


@cache
def _pattern(kind: str) -> re.Pattern[str]:
    return re.compile("|".join(_table()[kind]))


def is_harmless(key: str) -> bool:
    """Whether a key changes nothing for any type."""
    return key in _table()["harmless"] or key.endswith("_token_id")


def is_numeric(key: str) -> bool:
    """Whether the name of a key of a type of the table says that it changes nothing."""
    return _matches("numeric", key)


def is_further(key: str) -> bool:
    """Whether a key is about modules that predict further tokens."""
    return _matches("further", key)


def is_order(key: str) -> bool:
    """Whether a key states the kinds of the layers by a rule."""
    return _matches("order", key)


def _matches(kind: str, key: str) -> bool:
    return len(key) <= _LONGEST and _pattern(kind).fullmatch(key) is not None


@cache
def missing() -> dict[str, str]:
    """The parts that are not modelled of types that are not read, by the type."""
    return {name: parts for parts, names in _table()["missing"].items() for name in names}


@cache
def ignored() -> dict[str, tuple[str, ...]]:
    """Keys that change no tensor and no operation counted here, by type."""
    out: dict[str, tuple[str, ...]] = {}
    for names, keys in _table()["ignored"].items():
        for name in names.split():
            out[name] = (*out.get(name, ()), *keys)
    return out
