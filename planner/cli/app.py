"""The commands, one module each under planner.cli; this file only wires them up."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from planner.cli import (
    allreduce,
    batch,
    calibrate,
    compare,
    estimate,
    listing,
    recommend,
    schedule,
    search,
    serve,
    strategies,
    validate,
)
from planner.cli import loading as feeding
from planner.cli.progress import INTERRUPTED


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
            from planner.cli.scenario import refuse

            option = getattr(error, "option_name", None) or (
                getattr(error, "param", None) and error.param.opts[0]  # type: ignore[attr-defined]
            )
            command = f"dpplan {words[0]}" if words[0] in self.commands else "dpplan"
            said = f"{error.format_message().rstrip('.')}; see `{command} --help`"
            refuse(option or "command", " ".join(words), said, "--json" in words, said)
            raise SystemExit(2) from None
        except (typer.Abort, KeyboardInterrupt):
            status = INTERRUPTED
        if status == INTERRUPTED:  # Ctrl-C, which typer turns into this status
            print(
                "interrupted: files that were named are whole, or were not written", file=sys.stderr
            )
        raise SystemExit(status if isinstance(status, int) else 0)


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
)
app.command("estimate")(estimate.command)
app.command("search")(search.command)
app.command("recommend")(recommend.command)
app.command("compare")(compare.command)
app.command("batch")(batch.command)
app.command("schedule")(schedule.command)
app.command("strategies")(strategies.command)
app.command("allreduce")(allreduce.command)
app.command("batchnorm")(feeding.batch_norm)
app.command("input")(feeding.load)
app.command("list")(listing.command)
app.command("validate")(validate.command)
app.command("calibrate")(calibrate.command)
app.command("serve")(serve.command)
