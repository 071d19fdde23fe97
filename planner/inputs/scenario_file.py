"""Scenario files: options as keys of TOML, YAML or JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from planner.inputs import catalog
from planner.inputs.readers import read_json, read_toml, read_yaml, unique
from planner.specs.base import PlanError
from planner.specs.options import Given, Options, Origin, over, rows

_MOST_BYTES = 100_000  # of a scenario file: every option at once takes less than a thousand
_READERS: dict[str, Callable[[str], Any]] = {
    ".toml": read_toml,
    ".json": read_json,
    ".yaml": read_yaml,
    ".yml": read_yaml,
}


def merge(given: Mapping[str, Any]) -> Given:
    """Options of the command line, completed by the file that `scenario` names."""
    typed = {key: value for key, value in given.items() if key != "scenario"}
    return over(read(given["scenario"]) if "scenario" in given else {}, typed)


def read(name: str) -> Given:
    """Options of the scenario file of this name. Raises PlanError for anything but one table of
    plain values."""
    path = catalog.user_path(name, "--scenario")
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise PlanError("--scenario", name, "must end in .toml, .yaml or .json")
    text = catalog.read_text(path, "--scenario", _MOST_BYTES)
    try:
        data = reader(text)
        if not isinstance(data, dict):
            raise ValueError("must be a JSON object of options")
        options = plain_options(data, f"--scenario {path}")
        places = {key: Origin("file", f"{path.name}{_line(text, key)}") for key in options}
        return Given(options, places)
    except PlanError:
        raise
    except ValueError as error:
        raise PlanError("--scenario", name, str(error)) from None


def _line(text: str, name: str) -> str:
    """The line on which a key of the file begins, as the end of its place."""
    key = re.search(rf"""(?:^|[{{,])\s*["']?{name.replace("_", "[-_]")}["']?\s*[=:]""", text, re.M)
    return f":{text.count(chr(10), 0, key.end()) + 1}" if key else ""


def plain_options(data: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """Options by name from keys as people write them (`-` for `_`), one value each, or a list of
    texts where an option may be given several times. Raises PlanError."""
    table = rows(Options)
    out = unique([(str(key).replace("-", "_"), value) for key, value in data.items()])
    for name, value in out.items():
        several = name in table and table[name].is_several and isinstance(value, list)
        if isinstance(value, list | tuple | dict) and not several:
            raise PlanError(where, name, "must be one value, neither a list nor a table")
    return out
