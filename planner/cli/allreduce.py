"""`dpplan allreduce`: time of an all-reduce by algorithm."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.options import with_link_options


@with_link_options
def command(
    given: dict[str, Any],
    sizes: Annotated[
        str | None, typer.Option("--bytes", help="Bytes reduced, e.g. 100MB or 1MiB,1GiB")
    ] = None,
    servers: Annotated[
        int | None,
        typer.Option(
            "--servers",
            help="Servers of the parameter server, each with a node's cards (one per node)",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """Compare all-reduce algorithms: seconds by size, the fastest by size and number of ranks, and
    where they change.

    Exit status: 0 answered, 2 the request is wrong.
    """
    from planner.cli.scenario import clear_errors, print_json

    with clear_errors(as_json):
        from planner.verbs import allreduce as reductions

        found = reductions.answer(given, sizes, servers)
        if as_json:
            print_json(found)
            return
        from planner.show.strategies import all_reduce_blocks
        from planner.show.text import show_blocks

        show_blocks(all_reduce_blocks(found), plain)
