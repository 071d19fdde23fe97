"""`dpplan schedule`: one pipeline schedule, drawn, counted and compared with the others."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.options import with_request_options

_OWN = "Schedule"


@with_request_options
def command(
    given: dict[str, Any],
    microbatches: Annotated[
        int | None,
        typer.Option("--microbatches", help="Micro-batches per step", rich_help_panel=_OWN),
    ] = None,
    forward_s: Annotated[
        str | None,
        typer.Option(
            "--forward-s",
            help="Seconds of a rank's forward (1), or one per stage: 1,1,2",
            rich_help_panel=_OWN,
        ),
    ] = None,
    backward_s: Annotated[
        str | None,
        typer.Option(
            "--backward-s", help="Seconds of a whole backward, likewise (2)", rich_help_panel=_OWN
        ),
    ] = None,
    weight_s: Annotated[
        str | None,
        typer.Option(
            "--weight-s",
            help="Seconds of it that are weight gradient, likewise (half)",
            rich_help_panel=_OWN,
        ),
    ] = None,
    p2p_s: Annotated[
        str | None,
        typer.Option(
            "--p2p-s", help="Seconds of a message, or one per boundary (0)", rich_help_panel=_OWN
        ),
    ] = None,
    optimizer_s: Annotated[
        str | None,
        typer.Option(
            "--optimizer-s",
            help="Seconds that follow a rank's last action, or one per rank (0)",
            rich_help_panel=_OWN,
        ),
    ] = None,
    straggler: Annotated[
        str | None,
        typer.Option(
            "--straggler",
            help="RANK:FACTOR, ranks that compute longer: 3:1.2",
            rich_help_panel=_OWN,
        ),
    ] = None,
    blocking_sends: Annotated[
        bool,
        typer.Option(
            "--blocking-sends",
            help="Ranks wait for their sends instead of computing beside them",
            rich_help_panel=_OWN,
        ),
    ] = False,
    activation_bytes: Annotated[
        str | None,
        typer.Option(
            "--activation-bytes",
            help="Activations of one micro-batch on a rank: '1.2 GiB'",
            rich_help_panel=_OWN,
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            help="A schedule of your own: one row of 0F0,0F1,0B0 per rank",
            rich_help_panel=_OWN,
        ),
    ] = None,
    sends: Annotated[
        bool,
        typer.Option(
            "--sends",
            help="List sends and receives among the actions of --json",
            rich_help_panel="Output",
        ),
    ] = False,
    trace: Annotated[
        str | None,
        typer.Option(
            "--trace",
            help="Write trace events for ui.perfetto.dev to this file",
            rich_help_panel="Output",
        ),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option(
            "--html", help="Write a chart of the schedule to this page", rich_help_panel="Output"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """Time a pipeline schedule, count what its ranks keep, draw it, and compare all schedules at
    the same size.

    Without --model, seconds are those of the options below; with it, those of the layout that an
    estimate chooses. Exit status: 0 answered, 2 the request is wrong.
    """
    from planner.cli.scenario import check_results, clear_errors, merge, print_json, write_text

    with clear_errors(as_json):
        from planner.verbs.schedule import Request, draw

        check_results({"--trace": trace, "--html": html}, {**given, "file": file})
        merged = merge(given)
        chosen = {name: merged.pop(name, None) for name in ("schedule", "pp", "vpp")}
        drawn = draw(
            Request(
                **chosen,
                microbatches=microbatches,
                forward_s=forward_s,
                backward_s=backward_s,
                weight_s=weight_s,
                p2p_s=p2p_s,
                optimizer_s=optimizer_s,
                straggler=straggler,
                blocking_sends=blocking_sends,
                activation_bytes=activation_bytes,
                file=file,
                sends=sends,
            ),
            merged,
        )
        if trace is not None:
            from planner.show.trace import of_schedule

            found = drawn.document
            about = {
                "makespan_s": found.makespan_s,
                "step_s": found.step_s,
                "bubble_frac": found.bubble_frac,
            }
            write_text(
                trace,
                "--trace",
                of_schedule(drawn.program, drawn.timing, drawn.title, about).text(),
            )
        if html is not None:
            from planner.show.schedule_page import page

            text = page(drawn.document, drawn.program, drawn.timing, drawn.title)
            write_text(html, "--html", text)
        if as_json:
            print_json(drawn.document)
            return
        from planner.show.schedule import schedule_blocks, width_of
        from planner.show.text import show_blocks

        show_blocks(
            schedule_blocks(drawn.document, drawn.program, drawn.timing, width_of(plain)), plain
        )
