"""Options that an argument which is not understood may set: what a file says of them is undecided.
Which arguments touch which options is undecided.toml."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from planner.formats.plan import Planned
from planner.inputs.readers import read_toml

_TABLE = Path(__file__).with_name("undecided.toml")


def undecided(planned: Planned) -> dict[str, list[str]]:
    """The arguments that are not understood by the option that they may set, where neither the
    files state that otherwise nor is it typed."""
    stated = {name for name, stated in planned.recipe.stated.items() if not stated.implied}
    named = [
        name
        for name, argument in planned.recipe.arguments.items()
        if argument.use == "not understood"
    ]
    touched = {
        option: [name for name in named if _touches(name, row["arguments"])]
        for option, row in _table().items()
        if option not in stated | planned.typed.keys()
    }
    return {option: names for option, names in touched.items() if names}


def values(option: str) -> tuple[Any, ...]:
    """The values that an undecided option may have, where it is one of a few words."""
    return tuple(_table()[option].get("values", ()))


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
