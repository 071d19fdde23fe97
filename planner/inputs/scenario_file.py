"""Scenario files: options as keys of TOML, YAML or JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.inputs import catalog
from planner.inputs.json_text import read_json, unique
from planner.specs.base import PlanError
from planner.specs.options import Options, rows

_MOST_BYTES = 100_000  # of a scenario file: every option at once takes less than a thousand


def merge(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the command line over those of the file that `scenario` names."""
    typed = {key: value for key, value in given.items() if key != "scenario"}
    return {**read(given["scenario"]), **typed} if "scenario" in given else typed


def read(name: str) -> dict[str, Any]:
    """Options of the scenario file of this name. Raises PlanError for anything but one table of
    plain values."""
    path = catalog.user_path(name, "--scenario")
    text = catalog.read_text(path, "--scenario", _MOST_BYTES)
    try:
        if path.suffix == ".toml":
            found: Any = catalog.parse_toml(text, path, "--scenario")
        elif path.suffix == ".json":
            found = read_json(text)
        elif path.suffix in (".yaml", ".yml"):
            found = _yaml(text)
        else:
            raise PlanError("--scenario", name, "must end in .toml, .yaml or .json")
        if not isinstance(found, dict):
            raise PlanError("--scenario", name, "must be a JSON object of options")
        return plain_options(found, f"--scenario {path}")
    except RecursionError:
        raise PlanError(
            "--scenario", name, "is nested too deeply; it holds options, one value each"
        ) from None
    except PlanError:
        raise
    except ValueError as error:
        why = " ".join(str(error).split())[:200]
        raise PlanError("--scenario", name, f"cannot be read: {why}") from None


def plain_options(found: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """Options by name from keys as people write them (`-` for `_`), one value each, or a list of
    texts where an option may be given several times. Raises PlanError."""
    table = rows(Options)
    out = unique([(str(key).replace("-", "_"), value) for key, value in found.items()])
    for name, value in out.items():
        several = name in table and table[name].is_several and isinstance(value, list)
        if isinstance(value, list | tuple | dict) and not several:
            raise PlanError(where, name, "must be one value, neither a list nor a table")
    return out


def _yaml(text: str) -> dict[Any, Any]:
    """Keys and plain values of a YAML mapping; what is nested becomes an empty list, and is never
    expanded."""
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise ValueError("must be a mapping of options")
        return unique(
            [
                (_plain(loader, key, "?"), _plain(loader, value, _texts(loader, value)))
                for key, value in root.value
            ]
        )
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _plain(loader: Any, node: Any, else_: Any) -> Any:
    import yaml

    return loader.construct_object(node) if isinstance(node, yaml.ScalarNode) else else_


def _texts(loader: Any, node: Any) -> list[Any]:
    """Plain values of a YAML list, empty for anything else."""
    import yaml

    if not isinstance(node, yaml.SequenceNode):
        return []
    return [_plain(loader, one, []) for one in node.value]
