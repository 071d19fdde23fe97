"""The options of every command, from the option table, and the JSON Schema of a scenario file."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pages.text import table
from planner.cli.app import COMMANDS, body_of
from planner.cli.made import options_of
from planner.specs.options import Options, Row, rows
from planner.specs.options.numbers import bounds
from planner.specs.options.own import Output, ScenarioFile
from planner.specs.options.schema import scenario_schema
from planner.specs.options.verbs import REQUESTS

_HEAD = ["option", "type", "default", "meaning"]
_TYPES = {int: "integer", float: "number", str: "text", bool: "switch"}


def options() -> str:
    """Options of a request once, panel by panel, then those that each command has besides."""
    parts = [
        "### Options of a request\n\n"
        f"Taken by {_commands(REQUESTS)}, unless the last column says which alone take it.\n"
    ]
    every = (*rows(Options).values(), *rows(ScenarioFile).values())
    taken = [row for row in every if row.verbs & REQUESTS]
    for group in dict.fromkeys(row.group for row in taken):
        mine = [[*_row(row), _who(row)] for row in taken if row.group == group]
        parts.append(f"**{group.title}**\n\n" + table([*_HEAD, "only"], mine))
    for name in COMMANDS:
        request, own = options_of(name, body_of(name))
        own = {n: row for n, row in own.items() if row not in rows(Output).values()}
        alone = (
            [f"`{row.flag}`" for row in request.values()]
            if (request and not any(one.split()[0] == name for one in REQUESTS))
            else []
        )
        if not own and not alone:
            continue
        text = f"### `dpplan {name}`\n\n"
        if alone:
            text += f"With these of a request: {', '.join(alone)}.\n\n"
        parts.append(text + (table(_HEAD, [_row(row) for row in own.values()]) if own else ""))
    parts.append(
        "### Every command that answers\n\n"
        + table(_HEAD, [_row(row) for row in rows(Output).values()])
    )
    return "\n".join(parts)


def schema() -> str:
    """docs/scenario.schema.json."""
    return json.dumps(scenario_schema(), indent=2) + "\n"


def _row(row: Row) -> list[str]:
    name = f"`{row.says.argument or row.flag}`"
    if row.is_switch and rows(Options).get(row.name) == row:
        name += f", `--no-{row.flag[2:]}`"
    again = "; may be given again" if row.is_several else ""
    default = "needed" if row.is_needed else row.unset
    return [name, _type(row), default, row.says.help + again + row.also]


def _type(row: Row) -> str:
    unit, span = row.says.unit, bounds(row)
    if row.choices:
        return ", ".join(f"`{one}`" for one in row.choices)
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
    return ", ".join(f"`{verb}`" for verb in sorted({one.split()[0] for one in verbs}))
