"""Scenario files, and what every command does with a wrong request."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def merge(given: dict[str, Any]) -> dict[str, Any]:
    """Options of the command line over those of the --scenario file."""
    name = given.pop("scenario", None)
    flags = {key: value for key, value in given.items() if value is not None}
    if name is None:
        return flags
    return {**_read(Path(name).expanduser()), **flags}


def _read(path: Path) -> dict[str, Any]:
    from planner import catalog
    from planner.specs.base import PlanError

    if path.suffix == ".toml":
        data: Any = catalog.read_toml(path, "--scenario")
    else:
        text = catalog.read_text(path, "--scenario")
        try:
            if path.suffix == ".json":
                data = json.loads(text)
            elif path.suffix in (".yaml", ".yml"):
                import yaml

                data = yaml.safe_load(text)
            else:
                raise PlanError("--scenario", str(path), "must end in .toml, .yaml or .json")
        except RecursionError:
            raise PlanError("--scenario", str(path), "is nested too deeply") from None
        except PlanError:
            raise
        except Exception as error:  # what json and yaml raise for malformed text, all of it the user's file
            raise PlanError("--scenario", str(path), f"cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(data, dict):
        raise PlanError("--scenario", str(path), "must be a table of options")
    return {str(key).replace("-", "_"): value for key, value in data.items()}


@contextmanager
def clear_errors(as_json: bool) -> Iterator[None]:
    """A wrong request ends with one sentence on stderr (and one JSON document under --json), exit status 2."""
    from planner.specs.base import PlanError

    try:
        yield
    except PlanError as error:
        if as_json:
            document = {"field": error.field, "value": error.value, "remedy": str(error).split(" - ", 1)[-1]}
            print(json.dumps({"schema_version": 1, "error": document}, default=str))
        message = str(error).encode(sys.stderr.encoding or "utf-8", "backslashreplace").decode(sys.stderr.encoding or "utf-8")
        print(f"error: {' '.join(message.split())}", file=sys.stderr)
        raise SystemExit(2) from None


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    from planner.render import finite

    print(json.dumps(finite(document), indent=2, default=str))
