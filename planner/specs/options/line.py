"""A request as the command that asks for it, and back: the one place where commands are made."""

from __future__ import annotations

import shlex
from typing import Any

from planner.specs.options.record import Record
from planner.specs.options.row import flag
from planner.specs.options.table import rows


def command_line(options: Record, verb: str = "estimate") -> str:
    """The command with these options on one line, quoted for a shell. Options without effect, which
    the command would refuse, are left out."""
    words = ["dpplan", verb]
    table = rows(type(options))
    for name, value in options.given().items():
        needs = table[name].says.needs
        if needs and verb in (needs.verbs or {verb}) and not needs.holds(options):
            continue
        if isinstance(value, bool):
            words.append(flag(name) if value else "--no-" + name.replace("_", "-"))
        elif isinstance(value, tuple):
            words += [word for element in value for word in (flag(name), element)]
        else:
            words += [flag(name), str(value)]
    return shlex.join(words)


def pairs_of_command(line: str, record: type[Record], verb: str) -> list[tuple[str, str]]:
    """(name, value) of the options of a command that `command_line` made, values as text. Raises
    ValueError for another verb, or a word that `command_line` would not write."""
    words = shlex.split(line)
    if words[:2] != ["dpplan", verb]:
        raise ValueError(f"is not a command of dpplan {verb}")
    switches, valued = {}, {}
    for name, row in rows(record).items():
        if bool in row.types:
            switches[flag(name)] = (name, "true")
            switches["--no-" + name.replace("_", "-")] = (name, "false")
        else:
            valued[flag(name)] = name
    out, rest = [], iter(words[2:])
    for word in rest:
        if word in switches:
            out.append(switches[word])
        elif word in valued:
            out.append((valued[word], next(rest, "")))
        else:
            raise ValueError(f"has {word!r}, which is not an option")
    return out


def options_of_command(line: str, record: type[Record], verb: str) -> dict[str, Any]:
    """The options of a command that `command_line` made, by name. Raises ValueError."""
    from planner.specs.options.checked import from_text

    given: dict[str, Any] = {}
    table = rows(record)
    for name, text in pairs_of_command(line, record, verb):
        row = table[name]
        value = from_text(row, text) if row.kind in (bool, int, float) else text
        given[name] = [*given.get(name, ()), value] if row.is_several else value
    return given
