"""Options of a request and of commands, from the option table; the JSON Schema of a scenario
file."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pages.text import table
from planner.specs.options import Options, Row, rows
from planner.specs.options.numbers import bounds
from planner.specs.options.own import Output, ScenarioFile
from planner.specs.options.schema import scenario_schema
from planner.specs.options.verbs import REQUESTS

_HEAD = ["option", "type", "default", "meaning"]
_TYPES = {int: "integer", float: "number", str: "text", bool: "switch"}


def request() -> str:
    """The page of the options of a request, panel by panel, and of those that print."""
    parts = [
        f"# Options of a request\n\nTaken by {_commands(REQUESTS)}, unless the last column says"
        " which alone take it. Names are the same as keys of a scenario file (`_` for `-`) and in"
        " `planner.api`; how values are written is in the [contract](../contract.md#options).\n"
    ]
    every = (*rows(Options).values(), *rows(ScenarioFile).values())
    taken = [row for row in every if row.verbs & REQUESTS]
    for group in dict.fromkeys(row.group for row in taken):
        mine = [[*_row(row), _who(row)] for row in taken if row.group == group]
        parts.append(f"## {group.title}\n\n" + table([*_HEAD, "only"], mine))
    parts.append(
        "## Output\n\nOf every command that answers:\n\n"
        + table(_HEAD, [_row(row) for row in rows(Output).values()])
    )
    return "\n".join(parts)


def own_table(rows: Iterable[Row]) -> str:
    """The options of one command."""
    return table(_HEAD, [_row(row) for row in rows])


def schema() -> str:
    """docs/scenario.schema.json."""
    return json.dumps(scenario_schema(), indent=2) + "\n"


def _row(row: Row) -> list[str]:
    name = f"`{row.says.argument or row.flag}`"
    if row.says.short:
        name += f", `{row.says.short}`"
    if row.is_switch and rows(Options).get(row.name) == row:
        name += f", `--no-{row.flag[2:]}`"
    again = "; may be given again" if row.is_several else ""
    default = "needed" if row.is_needed else row.unset
    return [name, _type(row), default, row.says.help + again + row.also]


def _type(row: Row) -> str:
    unit, span = row.says.unit, bounds(row)
    if row.choices:
        return ", ".join(f"`{choice}`" for choice in row.choices)
    if row.says.catalogue == "storage":
        return f"id, or number with its unit, {span}"
    if unit and row.says.needs_unit:
        return f"number with its unit, {span}"
    if unit:
        return f"number, in {_plain(unit)}, {span}" if unit == "1" else f"number, {span}"
    if span:
        return f"{_TYPES.get(row.kind, 'text')}, {span}"
    if row.says.file:
        return "file"
    return _TYPES.get(row.kind, "text")


def _plain(unit: str) -> str:
    return "per cent or as a fraction" if unit == "1" else unit


def _who(row: Row) -> str:
    """The verbs that take it, where they are few."""
    missing = REQUESTS - row.verbs
    return "" if len(missing) <= 2 else _commands(row.verbs & REQUESTS)


def _commands(verbs: Iterable[str]) -> str:
    return ", ".join(f"`{verb}`" for verb in sorted({key.split()[0] for key in verbs}))
