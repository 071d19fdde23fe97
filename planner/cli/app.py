"""The commands, one module each under planner.cli; this file only wires them up."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from planner.cli import (
    allreduce,
    batch,
    batchnorm,
    calibrate,
    compare,
    estimate,
    input,
    listing,
    recommend,
    schedule,
    schema,
    search,
    serve,
    strategies,
    validate,
)
from planner.cli.finish import refuse
from planner.cli.made import Body, made
from planner.cli.progress import INTERRUPTED
from planner.specs.options import Options, rows, why_not


class Commands(TyperGroup):
    """Words that are no options end as any wrong request does: one sentence, one JSON document
    under --json, status 2."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        if not standalone_mode or not words:
            return super().main(
                args, prog_name, complete_var, standalone_mode, windows_expand_args, **extra
            )
        try:
            status = super().main(
                args, prog_name, complete_var, False, windows_expand_args, **extra
            )
        except TyperException as error:
            unknown = getattr(error, "option_name", None)  # to this command
            option = unknown or (
                getattr(error, "param", None) and error.param.opts[0]  # type: ignore[attr-defined]
            )
            command = f"dpplan {words[0]}" if words[0] in self.commands else "dpplan"
            said = f"{error.format_message().rstrip('.')}; see `{command} --help`"
            if row := next((r for r in rows(Options).values() if r.flag == unknown), None):
                said = f"{option}: {why_not(row, words[0])}"
            refuse(option or "command", " ".join(words), said, "--json" in words, said)
            raise SystemExit(2) from None
        except (typer.Abort, KeyboardInterrupt):
            status = INTERRUPTED
        if status == INTERRUPTED:  # Ctrl-C, which typer turns into this status
            print(
                "interrupted: files that were named are whole, or were not written", file=sys.stderr
            )
        raise SystemExit(status if isinstance(status, int) else 0)


class Panels(TyperCommand):
    """Help with a section per group of options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for one in self.get_params(ctx):
            if (record := one.get_help_record(ctx)) is not None:
                words = "Arguments" if one.param_type_name == "argument" else "Options"
                panel = getattr(one, "rich_help_panel", None) or words
                panels.setdefault(panel, []).append(record)
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)


app = typer.Typer(
    name="dpplan",
    cls=Commands,
    help=(
        "Plan the training of a large model before renting a GPU: what fits, how fast, for how"
        " much, why."
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)
COMMANDS: dict[str, Body] = {
    "estimate": estimate.command,
    "search": search.command,
    "recommend": recommend.command,
    "compare": compare.command,
    "batch": batch.command,
    "schedule": schedule.command,
    "strategies": strategies.command,
    "allreduce": allreduce.command,
    "batchnorm": batchnorm.command,
    "input": input.command,
    "list": listing.command,
    "validate": validate.command,
    "calibrate": calibrate.command,
    "schema": schema.command,
    "serve": serve.command,
}
for _name, _body in COMMANDS.items():
    app.command(_name, cls=Panels)(made(_name, _body))
