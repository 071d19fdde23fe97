"""Frameworks of reinforcement learning by name."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from planner.inputs import catalog
from planner.rl.specs import EngineSpec, FrameworkSpec, FrameworksSpec
from planner.rl.step import Loop
from planner.specs.base import PlanError
from planner.specs.options.words import near

_FILE = Path(__file__).with_name("reinforcement.toml")


def loop(framework: FrameworkSpec) -> Loop:
    """Overhead of the loop of a framework over its parts."""
    spec = frameworks().loop
    return Loop(
        token_s=float(spec.token),
        passes=float(spec.passes),
        refit_rate=float(spec.refit),
        response_s=float(spec.response),
        row_bytes=framework.row_bytes,
        row_rate=float(spec.rows),
    )


@cache
def frameworks() -> FrameworksSpec:
    """The shipped table."""
    name = _FILE.name
    return catalog.build(FrameworksSpec, catalog.read_toml(_FILE, name), name, name)


def framework(name: str, engine: str | None = None) -> tuple[FrameworkSpec, EngineSpec]:
    """A framework and its engine, or the one that is named. Raises PlanError with those that there
    are."""
    table = frameworks()
    word = name.strip().lower().replace("_", "-").replace(" ", "-")
    entry = table.frameworks.get(word)
    if entry is None:
        known = ", ".join(table.frameworks)
        hint = near(word, list(table.frameworks))
        raise PlanError("--framework", name, f"is not one of {known}; {hint}".rstrip("; "))
    return entry, table.engines[engine or entry.engine]
