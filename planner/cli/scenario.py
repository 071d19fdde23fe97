"""Scenario files, and what every command does with a wrong request."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SHOWN = 1000  # characters of a wrong value that are quoted
_LISTS = ("require", "where")  # options of a scenario file that may be lists of texts
_MAX_BYTES = 100_000  # of a scenario file: every option at once takes less than a thousand


def merge(given: dict[str, Any]) -> dict[str, Any]:
    """Options of the command line over those of the --scenario file."""
    name = given.pop("scenario", None)
    flags = {key: value for key, value in given.items() if value is not None}
    if name is None:
        return flags
    return {**read(name), **flags}


def read(name: str) -> dict[str, Any]:
    """Options of the scenario file of this name."""
    from planner.inputs import catalog

    return _read(catalog.user_path(name, "--scenario"))


def _read(path: Path) -> dict[str, Any]:
    """Options of a scenario file: one table of plain values. Raises PlanError for anything else."""
    from planner.inputs import catalog
    from planner.specs.base import PlanError

    field, name = "--scenario", str(path)
    text = catalog.read_text(path, field, _MAX_BYTES)
    try:
        if path.suffix == ".toml":
            pairs = list(catalog.parse_toml(text, path, field).items())
        elif path.suffix == ".json":
            data = json.loads(text, object_pairs_hook=_Pairs)
            if not isinstance(data, _Pairs):
                raise PlanError(field, name, "must be a JSON object of options")
            pairs = list(data)
        elif path.suffix in (".yaml", ".yml"):
            pairs = _yaml_pairs(text)
        else:
            raise PlanError(field, name, "must end in .toml, .yaml or .json")
    except RecursionError:
        raise PlanError(
            field, name, "is nested too deeply; it holds options, one value each"
        ) from None
    except PlanError:
        raise
    except ValueError as error:  # what json raises for malformed text, and _yaml_pairs
        raise PlanError(
            field, name, f"cannot be read: {' '.join(str(error).split())[:200]}"
        ) from None
    out: dict[str, Any] = {}
    for given, value in pairs:
        key = str(given).replace("-", "_")
        if key in out:
            raise PlanError(f"{field} {name}", key, "is given twice; keep one")
        if key in _LISTS and isinstance(value, list | str):
            out[key] = [value] if isinstance(value, str) else value
            continue
        if isinstance(value, list | tuple | dict):
            raise PlanError(f"{field} {name}", key, "must be one value, neither a list nor a table")
        out[key] = value
    return out


class _Pairs(tuple[tuple[str, Any], ...]):
    """A JSON object with its keys as written, repeated ones included."""

    __slots__ = ()


def _yaml_pairs(text: str) -> list[tuple[Any, Any]]:
    """Keys and plain values of a YAML mapping; what is nested becomes an empty list, and is never
    expanded."""
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise ValueError("must be a mapping of options")
        return [
            (
                loader.construct_object(key) if isinstance(key, yaml.ScalarNode) else "?",
                loader.construct_object(value)
                if isinstance(value, yaml.ScalarNode)
                else _yaml_texts(loader, value),
            )
            for key, value in root.value
        ]
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _yaml_texts(loader: Any, node: Any) -> list[Any]:
    """Plain values of a YAML list, empty for anything else."""
    import yaml

    if not isinstance(node, yaml.SequenceNode):
        return []
    return [
        loader.construct_object(one) if isinstance(one, yaml.ScalarNode) else []
        for one in node.value
    ]


@contextmanager
def clear_errors(as_json: bool) -> Iterator[None]:
    """A wrong request ends with one sentence on stderr (and one JSON document under --json), exit
    status 2."""
    from planner.specs.base import PlanError

    try:
        yield
    except PlanError as error:
        refuse(error.field, error.value, error.remedy, as_json, str(error))
        raise SystemExit(2) from None


def refuse(field: str, value: object, remedy: str, as_json: bool, sentence: str) -> None:
    """Say what is wrong with a request: a sentence on stderr, and under --json a document on
    stdout."""
    if as_json:
        shown = value if value is None or isinstance(value, bool | float) else str(value)[:_SHOWN]
        print_json(
            {"schema_version": 1, "error": {"field": field, "value": shown, "remedy": remedy}}
        )
    encoding = sys.stderr.encoding or "utf-8"
    message = f"error: {' '.join(sentence.split())}"
    print(message.encode(encoding, "backslashreplace").decode(encoding), file=sys.stderr)


def check_results(asked: dict[str, str | None], given: dict[str, Any]) -> None:
    """Refuse a result that would replace another result of this command or a file that it reads."""
    from planner.specs.base import PlanError

    read = (_place(value) for value in given.values() if isinstance(value, str) and value)
    taken = {path for path in read if os.path.isfile(path)}
    for option, name in asked.items():
        if name is None:
            continue
        if _place(name) in taken:
            raise PlanError(
                option, name, "is named twice in this command; give each result its own file"
            )
        taken.add(_place(name))


def _place(name: str) -> str:
    return os.path.abspath(os.path.expanduser(name))


def write_text(name: str, field: str, text: str) -> None:
    """Write a file a user named; it appears whole or not at all."""
    from planner.inputs import catalog

    catalog.write_text(catalog.user_path(name, field), field, text)


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    from planner.specs.document import to_json

    print(to_json(document, indent=2))
