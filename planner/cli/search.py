"""`dpplan search`: every valid layout, ranked."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.options import with_request_options


@with_request_options
def command(
    given: dict[str, Any],
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective",
            help="time, memory, cost, energy or tokens-per-dollar: what `top` is sorted by",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    csv: Annotated[
        str | None,
        typer.Option(
            "--csv", help="Write every layout that fits, with its components, to this CSV file"
        ),
    ] = None,
    html: Annotated[
        str | None, typer.Option("--html", help="Write the search with a chart to this HTML page")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """Evaluate every valid layout: the best that fit, the front of time against memory, and why
    others fell.

    Exit status: 0 something fits, 3 nothing fits, 2 the request is wrong, 130 interrupted.
    """
    from planner.cli.progress import progress
    from planner.cli.scenario import check_results, clear_errors, merge, print_json, write_text

    with clear_errors(as_json):
        from planner import api

        check_results({"--csv": csv, "--html": html}, given)
        options = api.read_options(merge({**given, "objective": objective}))
        with progress("searching") as tick:
            found, plans = api.search_with_layouts(options, tick)
        texts = {}  # of all results, before the first is written
        if csv is not None:
            from planner.report.search import csv_text

            with progress("evaluating what fits") as tick:
                texts["--csv"] = csv, csv_text(plans, tick)
        if html is not None:
            from planner.show import search_page

            texts["--html"] = html, search_page.page(found)
        for option, (name, text) in texts.items():
            write_text(name, option, text)
        if as_json:
            print_json(found)
        else:
            from planner.show.text import search_blocks, show_blocks

            show_blocks(search_blocks(found), plain)
        raise SystemExit(0 if found["feasible"] else 3)
