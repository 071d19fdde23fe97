"""`dpplan compare`: requests side by side, and sweeps."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.options import with_request_options

_OWN, _OUT = "Comparison", "Output"


@with_request_options
def command(
    given: dict[str, Any],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SCENARIO...]",
            help="Scenario files (TOML, YAML, JSON) side by side; options given here are common",
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            help=(
                "NAME=A,B,...: any option (search: left out), or strategy=ddp,zero1,zero2,zero3,3d;"
                " may be given again"
            ),
            rich_help_panel=_OWN,
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            help=(
                "NAME=8..4096 (doubling), 8..512*4, 16..128+16 or a list; twice for two dimensions"
            ),
            rich_help_panel=_OWN,
        ),
    ] = None,
    at: Annotated[
        str,
        typer.Option(
            "--at",
            help="count, or whole nodes of equal cost or power to the first request's",
            rich_help_panel=_OWN,
        ),
    ] = "count",
    scaling: Annotated[
        str,
        typer.Option(
            "--scaling",
            help="Over swept GPUs: strong keeps the batch, weak the batch per GPU",
            rich_help_panel=_OWN,
        ),
    ] = "strong",
    stop_below: Annotated[
        float,
        typer.Option(
            "--stop-below",
            help="More GPUs stop paying where one brings less than this share of one at the start",
            rich_help_panel=_OWN,
        ),
    ] = 0.5,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            help="Processes for many requests; default: cores of this machine",
            rich_help_panel=_OWN,
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option("--csv", help="Write one line per request to this CSV", rich_help_panel=_OUT),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option("--html", help="Write tables and charts to this page", rich_help_panel=_OUT),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """Several clusters, models or layouts side by side with what makes the difference; any number
    swept, with its scaling.

    Exit status: 0 something fits, 3 nothing fits, 2 the request is wrong, 130 interrupted.
    """
    from planner.cli.scenario import (
        check_results,
        clear_errors,
        merge,
        print_json,
        read,
        write_text,
    )

    with clear_errors(as_json):
        from planner.cli.progress import processes, progress
        from planner.verbs import compare

        results = {"--csv": table, "--html": html}
        check_results(
            results, {**given, **{f"file {i}": name for i, name in enumerate(files or ())}}
        )
        asked = compare.Asked(
            scenarios=[(name, read(name)) for name in files or ()],
            vary=vary or (),
            sweep=sweep or (),
            at=at,
            scaling=scaling,
            stop_below=stop_below,
            jobs=processes(jobs),
        )
        with progress("requests", plain) as tick:
            out = compare.compare(asked, merge(given), tick)
            texts = {}  # of all results, before the first is written
            if table is not None:
                texts["--csv"] = table, compare.csv_text(out)
            if html is not None:
                from planner.show import compare_page

                texts["--html"] = html, compare_page.page(out)
        for option, (name, text) in texts.items():
            write_text(name, option, text)
        if as_json:
            print_json(out)
        else:
            from planner.show.compare import compare_blocks
            from planner.show.text import show_blocks

            show_blocks(compare_blocks(out), plain)
        fits = any(point["refused"] is None and point["memory"]["fits"] for point in out["points"])
        raise SystemExit(0 if fits else 3)
