"""`dpplan list`: what the catalogue holds."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    kind: Annotated[
        str, typer.Argument(help="gpus, models, networks, stacks, clusters or schedules")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """List the shipped GPUs, models, networks, stacks, clusters or schedules."""
    from planner.cli.scenario import clear_errors, print_json

    with clear_errors(as_json):
        from planner import api

        entries = api.list_catalog(kind)
        if as_json:
            print_json(entries)
            return
        from planner.show.text import list_blocks, show_blocks

        show_blocks(list_blocks(kind, entries), plain)
