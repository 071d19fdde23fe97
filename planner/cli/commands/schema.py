"""`dpplan schema`: what a scenario file may hold, for editors."""

from __future__ import annotations

from planner.cli.refusal import print_json


def command() -> None:
    """Print the JSON Schema of a scenario file, by which editors check and complete it."""
    from planner.specs.options.schema import scenario_schema

    print_json(scenario_schema())
