"""Commands made from the option table: a function over records of options becomes a typer command.

    def command(given: Given, own: SearchFiles, out: Output) -> Answer: ...

`given` are the options of a request by name, those of --scenario under those typed; other
parameters are records. Every command checks what it would write, answers, and ends the same way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, get_type_hints

import typer

from planner.cli.finish import Answer, check_results, clear_errors, finish
from planner.specs.options import Options, Record, Row, rows, taken
from planner.specs.options.own import ScenarioFile

Given = dict[str, Any]
Body = Callable[..., Answer | None]


def made(verb: str, body: Body) -> Callable[..., None]:
    """A typer command of `dpplan VERB` that asks for what the body's parameters are made of."""
    kinds = {name: kind for name, kind in get_type_hints(body).items() if name != "return"}
    records = {name: _own(kind, verb) for name, kind in kinds.items() if kind != Given}
    request = (*taken(Options, verb), *taken(ScenarioFile, verb)) if "given" in kinds else ()
    own = {row.name: row for part in records.values() for row in part}
    table = {row.name: row for row in request} | own
    written = {name: row for name, row in own.items() if row.says.file == "written"}

    def command(**typed: Any) -> None:
        values = {name: value for name, value in typed.items() if value not in (None, [])}
        with clear_errors(bool(values.get("json"))):
            check_results(written, values)
            arguments: dict[str, Any] = {}
            for name, part in records.items():
                from planner.specs.options.checked import read

                mine = {row.name: values[row.name] for row in part if row.name in values}
                arguments[name] = read(kinds[name], mine)
            if request:
                from planner.inputs.scenario_file import merge

                arguments["given"] = merge({k: v for k, v in values.items() if k not in own})
            answer = body(**arguments)
            if answer is not None:
                finish(arguments["out"], written, values, answer)

    command.__doc__ = body.__doc__
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_parameter(row, verb) for row in _in_order(table.values())]
    )
    return command


def _own(record: type[Record], verb: str) -> tuple[Row, ...]:
    """The options of a record that a verb takes; all of one that is of no verb in particular."""
    return taken(record, verb) if record.VERBS else tuple(rows(record).values())


def _in_order(table: Iterable[Row]) -> list[Row]:
    """Words first, then options panel by panel."""
    some = list(table)
    panels = list(dict.fromkeys(row.group for row in some))
    return sorted(some, key=lambda row: (not row.says.argument, panels.index(row.group)))


def _parameter(row: Row, verb: str) -> inspect.Parameter:
    """An option or argument of typer; None where it is not given, so that a record knows."""
    several = row.is_several or any(one.startswith(f"{verb} ") for one in row.says.several)
    kind = list[str] if several else row.kind
    if kind not in (int, float, bool, list[str], tuple[str, str]):
        kind = str
    panel = row.group.title
    if row.says.argument:
        note = typer.Argument(metavar=row.says.argument, help=row.help, show_default=False)
    else:
        spelled = row.flag
        if row.is_switch and rows(Options).get(row.name) == row:  # a scenario file may have set it
            spelled = f"{row.flag}/--no-{row.flag[2:]}"
        text = row.help if row.is_several or not several else f"{row.help}; may be given again"
        note = typer.Option(spelled, help=text, rich_help_panel=panel, show_default=False)
    return inspect.Parameter(
        row.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, note],
    )
