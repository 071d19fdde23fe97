"""Functions of verbs, made of the option table when they are first used."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from dpplan.answer import Answer
from planner.cli import call
from planner.cli.group import COMMANDS, body_of
from planner.specs.options import Row

_WIDTH = 96


@cache
def names() -> tuple[str, ...]:
    """Verbs that answer, in the order of `dpplan --help`."""
    return tuple(name for name in COMMANDS if call.answers(name))


def function(verb: str) -> Callable[..., Answer[Any]] | None:
    """The function of a verb; None where no verb of this name answers."""
    if not call.answers(verb):
        return None

    def ask(*words: Any, **options: Any) -> Answer[Any]:
        return Answer(verb, call.call(verb, words, options))

    table = call.options(verb)
    ask.__name__ = ask.__qualname__ = verb
    ask.__module__ = "dpplan"
    ask.__doc__ = _documented(verb, table)
    ask.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_parameter(row) for row in table.values()], return_annotation=Answer
    )
    return ask


def _parameter(row: Row) -> inspect.Parameter:
    if not row.says.argument:
        kind: Any = inspect.Parameter.KEYWORD_ONLY
    elif row.is_several:
        return inspect.Parameter(row.name, inspect.Parameter.VAR_POSITIONAL, annotation=str)
    else:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(row.name, kind, default=None, annotation=row.annotation)


def _documented(verb: str, table: dict[str, Row]) -> str:
    """The sentence of the command, and its options by group."""
    lines = [" ".join((inspect.getdoc(body_of(verb)) or "").split("\n\n")[0].split())]
    group = ""
    for row in table.values():
        if row.group.title != group:
            group = row.group.title
            lines += ["", group, "-" * len(group)]
        text = f"{row.name}: {row.help}"
        lines.append(text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3].rstrip()}...")
    return "\n".join(lines)
