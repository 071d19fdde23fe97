"""`dpplan search`: every valid layout, ranked."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.options import with_request_options


@with_request_options
def command(
    given: dict[str, Any],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """Evaluate every valid layout: the fastest that fit, the front of time against memory, and why others fell.

    Exit status: 0 something fits, 3 nothing fits, 2 the request is wrong.
    """
    from planner.cli.scenario import clear_errors, merge, print_json

    with clear_errors(as_json):
        from planner import api

        found = api.search_layouts(api.read_options(merge(given)))
        if as_json:
            print_json(found)
        else:
            from planner.render import search_blocks, show_blocks

            show_blocks(search_blocks(found), plain)
        raise SystemExit(0 if found["feasible"] else 3)
