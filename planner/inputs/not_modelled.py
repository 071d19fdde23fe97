"""Recognised but unsupported names of models, GPUs, stacks and networks, which get an explanation
instead of a near match (planner/data/not_modelled.toml)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from planner.inputs.readers import read_toml

_WEIGHTS = (".gguf", ".safetensors", ".bin", ".pt", ".pth", ".onnx", ".ckpt", ".index")
_FILE = Path(__file__).parents[1] / "data" / "not_modelled.toml"


@dataclass(frozen=True)
class Other:
    """A kind of thing that is not modelled.

    is_a: what it is, as in "X is ..."; remedy: the nearest thing that can be done; words: parts of
    names, and model types of transformers.
    """

    is_a: str
    remedy: str
    words: frozenset[str]


@cache
def _others(kind: str) -> tuple[Other, ...]:
    """The entries of a table of the file, in its order."""
    tables = read_toml(_FILE.read_text("utf-8")).get(kind, {})
    return tuple(
        Other(is_a, remedy, frozenset(words.split()))
        for remedy, entries in tables.items()
        for is_a, words in entries.items()
    )


def _of_kind(kind: str, readable: bool) -> Iterator[Other]:
    """Entries of a kind; readable: with the models whose config.json is read."""
    yield from _others(kind)
    if kind == "models" and readable:
        yield from _others("readable")


def of_name(kind: str, name: str, fetched: bool = False) -> str:
    """The kind of thing that a name tells and that is not modelled, with a remedy, as the rest of a
    sentence; "" if it tells none. Only whole words of a name count.

    fetched: the name is one whose config.json can be read.
    """
    if kind == "models" and name.lower().endswith(_WEIGHTS):
        return "is a file of weights; give the config.json beside it, or a catalogue name"
    words = name.lower().split()
    parts = {part for word in words for part in re.split(r"[-_/:.]", word)} | {name.lower()}
    return _remedy(_of_kind(kind, readable=not fetched), parts)


def of_type(model_type: str) -> str:
    """The reason for a model type of transformers, such as "bert" or "t5"."""
    whole = model_type.lower().replace("_", "-")
    parts = {whole, *whole.split("-")}
    return _remedy(_of_kind("models", readable=False), parts)


def _remedy(others: Iterator[Other], parts: set[str]) -> str:
    """The rest of a sentence on the first entry that has one of these parts of a name."""
    matching = (f"is {other.is_a}: {other.remedy}" for other in others if other.words & parts)
    return next(matching, "")
