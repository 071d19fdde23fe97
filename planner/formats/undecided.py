"""Options that an argument which is not understood may set: their values are undecided. Which
arguments touch which options is undecided.toml."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from planner.formats.recipe import Recipe
from planner.inputs.readers import read_toml
from planner.specs.options import Undecided

_LEFT = "not understood"
_TABLE = Path(__file__).with_name("undecided.toml")


def undecided(recipe: Recipe, typed: Collection[str]) -> dict[str, Undecided]:
    """The options that arguments which are not understood may set, where neither the files state
    them otherwise nor are they typed; and options that follow from those."""
    stated = {name for name, stated in recipe.stated.items() if not stated.implied}
    named = [name for name, argument in recipe.arguments.items() if argument.use == _LEFT]
    out: dict[str, Undecided] = {}
    for option, row in _table().items():
        names = tuple(name for name in named if _touches(name, row["arguments"]))
        if not names or option in stated or option in typed:
            continue
        out[option] = Undecided(names, tuple(row.get("values", ())))
        for other in row.get("with", ()):
            if other not in typed:
                out.setdefault(other, Undecided(names))
    return out


def _touches(name: str, patterns: list[str]) -> bool:
    plain = name.rpartition(": ")[2].lower().replace("-", "_")
    return any(
        fnmatchcase(text, pattern)
        for text in (plain, plain.rpartition(".")[2])
        for pattern in patterns
    )


@cache
def _table() -> Mapping[str, Any]:
    return read_toml(_TABLE.read_text("utf-8"))
