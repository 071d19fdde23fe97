"""The commands, one module each under planner.cli; this file only wires them up."""

from __future__ import annotations

import typer

from planner.cli import estimate, listing, search, serve, validate

app = typer.Typer(
    name="dpplan",
    help="Plan the training of a large model before renting a GPU: what fits, how fast, for how much, why.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("estimate")(estimate.command)
app.command("search")(search.command)
app.command("list")(listing.command)
app.command("validate")(validate.command)
app.command("serve")(serve.command)
