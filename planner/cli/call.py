"""A verb called by a program: options by name in, the answer of its command out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

from planner.cli.finish import Answer, check_results, write
from planner.cli.group import COMMANDS, body_of
from planner.cli.made import options_of, read_arguments, written_of
from planner.error import PlanError
from planner.inputs.files import remembered
from planner.specs.options import Options, Row, rows, why_not
from planner.specs.options.own import Output

_TERMINAL = frozenset(rows(Output)) - {"html"}  # how a command prints


def answers(verb: str) -> bool:
    """Whether a verb is a question with an answer, and not a server or a schema."""
    return verb in COMMANDS and get_type_hints(body_of(verb)).get("return") is Answer


def options(verb: str) -> dict[str, Row]:
    """The options of a verb by name: words, further options of the verb, options of a request."""
    request, specific = options_of(verb, body_of(verb))
    own_first = sorted(specific.values(), key=lambda row: not row.says.argument)
    table = {**{row.name: row for row in own_first}, **request}
    return {name: row for name, row in table.items() if name not in _TERMINAL}


def call(verb: str, words: Sequence[Any], named: Mapping[str, Any]) -> Answer:
    """The answer of `dpplan VERB`; nothing is printed, and results that options name are written.

    words: values of the arguments that have no flag, in their order; named: values of options by
    name, None where one is not given. More processes are started only by `jobs`: each runs a script
    again that has no guard. Raises PlanError as the command does.
    """
    table = options(verb)
    values = _checked(verb, table, {**_of_words(verb, table, words, named), **named})
    if "jobs" in table:
        values.setdefault("jobs", 1)
    body = body_of(verb)
    written = written_of(options_of(verb, body)[1])
    with remembered():
        values, arguments = read_arguments(verb, body, {**values, "plain": True})
        check_results(written, {**arguments.get("given", {}), **values}, False)
        answer = body(**arguments)
        if answer is None:
            raise TypeError(f"dpplan {verb} has no answer")
        write(written, values, answer)
    return answer


def _of_words(
    verb: str, table: Mapping[str, Row], words: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Values without a name as options: the last argument takes all that are left where it takes
    several."""
    out: dict[str, Any] = {}
    left = list(words)
    for row in table.values():
        if left and row.says.argument:
            out[row.name] = left[:] if row.is_several else left[0]
            left = [] if row.is_several else left[1:]
    if left:
        raise PlanError(verb, left[0], "is a value without a name: give it as OPTION=VALUE")
    if both := out.keys() & named.keys():
        raise PlanError(min(both), named[min(both)], "is given twice; give it once")
    return out


def _checked(verb: str, table: Mapping[str, Row], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are given, as the command line has them. Raises PlanError."""
    values = {name: value for name, value in given.items() if value is not None}
    for name, value in values.items():
        if name in table:
            values[name] = _as_typed(table[name], value)
        elif name in rows(Options):
            row = rows(Options)[name]
            raise PlanError(row.flag, value, why_not(row, verb))
        else:
            from planner.specs.options.checked import unknown

            raise unknown(name, value, table)
    return values


def _as_typed(row: Row, value: Any) -> Any:
    """A path as text, and several values as a list."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not row.is_several:
        return value
    several = value if isinstance(value, list | tuple) else [value]
    return [os.fspath(each) if isinstance(each, os.PathLike) else each for each in several]
