"""The command line as a whole; this file only wires the commands up."""

from __future__ import annotations

from typing import Annotated, cast, get_args

import typer

from planner import __version__
from planner.cli.group import Commands

_SETTINGS = {"max_content_width": 100, "help_option_names": ["--help", "-h"]}
app = typer.Typer(
    name="dpplan",
    cls=Commands,
    help=(
        "Plan the training of a large model before renting a GPU: what fits, how fast, for how"
        " much, why."
    ),
    epilog="`dpplan help COMMAND` shows the groups of its options, `dpplan help GROUP` a group.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)


def _version(requested: bool) -> None:
    if requested:
        print(f"dpplan {__version__}")
        raise typer.Exit


def _completion(shell: str | None) -> None:
    if shell is None:
        return
    from planner.cli import completion

    shells = get_args(completion.Shell)
    if shell not in shells:
        raise typer.BadParameter(f"{shell!r} - is not one of {', '.join(shells)}")
    print(completion.script(cast(completion.Shell, shell)), end="")
    raise typer.Exit


@app.callback()
def _group(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version")
    ] = False,
    completion: Annotated[
        str | None,
        typer.Option(
            callback=_completion,
            is_eager=True,
            metavar="SHELL",
            help="Print the script that completes words in bash, zsh or fish",
        ),
    ] = None,
) -> None:
    """Only the options that every command has."""
