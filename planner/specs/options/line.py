"""A request as the command that asks for it: the one place where commands are made."""

from __future__ import annotations

import shlex

from planner.specs.options.record import Record
from planner.specs.options.row import flag, rows


def command_line(options: Record, verb: str = "estimate") -> str:
    """The command with these options, quoted for a shell, on one line; without those that nothing
    beside them lets act, which it would refuse."""
    words = ["dpplan", verb]
    table = rows(type(options))
    for name, value in options.given().items():
        needs = table[name].says.needs
        if needs and verb in (needs.verbs or {verb}) and not needs.holds(options):
            continue
        if isinstance(value, bool):
            words.append(flag(name) if value else "--no-" + name.replace("_", "-"))
        elif isinstance(value, tuple):
            words += [word for one in value for word in (flag(name), one)]
        else:
            words += [flag(name), str(value)]
    return shlex.join(words)
