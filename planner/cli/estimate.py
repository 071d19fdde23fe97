"""`dpplan estimate`: the answer for one request."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.options import with_request_options

PARTS = ("memory", "time")


@with_request_options
def command(
    given: dict[str, Any],
    part: Annotated[
        str | None,
        typer.Argument(
            metavar="[memory|time]",
            help="After --explain: only this part, memory by stage and phase",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the tree of formulas with numbers and sources")
    ] = False,
    trace: Annotated[
        str | None,
        typer.Option(
            "--trace", help="Write the timeline of the step for ui.perfetto.dev to this file"
        ),
    ] = None,
    html: Annotated[
        str | None, typer.Option("--html", help="Write the report with charts to this HTML page")
    ] = None,
    inference: Annotated[
        bool,
        typer.Option("--inference", help="Also: batches and contexts the trained model serves"),
    ] = False,
    advice: Annotated[
        int | None,
        typer.Option(
            "--advice",
            help="Evaluate every change of the plan and list so many; 0: none",
            show_default=False,
        ),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require",
            help=(
                "Exit with 4 unless this holds, e.g. 'memory < 90%', 'days.high < 30', 'fits';"
                " again for more"
            ),
        ),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """Estimate memory, step time and cost; what is left out of the layout is searched.

    Exit status: 0 answered and fits, 3 answered and nothing fits, 4 fits but a requirement does not
    hold, 2 the request is wrong.
    """
    from planner.cli.scenario import check_results, clear_errors, merge, print_json, write_text

    with clear_errors(as_json):
        from planner import api
        from planner.specs.base import PlanError

        if part is not None and (part not in PARTS or not explain):
            raise PlanError(
                "--explain",
                part,
                f"explains {' or '.join(PARTS)}, as in --explain memory; without a word,"
                " everything",
            )
        check_results({"--trace": trace, "--html": html}, given)
        options = api.read_options(merge({**given, "advice": advice, "require": require or None}))
        if explain:
            from planner.show.explain import nested, part_of

            report, tree = api.explain(options)
            tree = part_of(tree, part)
            report["explain"] = nested(tree)
        else:
            report = api.estimate(options)
        texts = {}  # of all results, before the first is written
        if trace is not None:
            from planner.verbs import step_trace

            texts["--trace"] = trace, step_trace.text(options)
        if html is not None:
            from planner.show import estimate_page

            texts["--html"] = html, estimate_page.page(report)
        for option, (name, text) in texts.items():
            write_text(name, option, text)
        if as_json:
            print_json(report)
        else:
            from planner.show.estimate import estimate_blocks, inference_blocks, offload_blocks
            from planner.show.text import show_blocks

            more = [
                *(inference_blocks(report) if inference else ()),
                *(offload_blocks(report) if explain else ()),
            ]
            show_blocks([*estimate_blocks(report), *more], plain)
            if explain:
                from planner.show.explain import lines, machine_lines, memory_lines

                first = [] if part == "memory" else [*machine_lines(report["machine"]), ""]
                second = [] if part == "time" else [*memory_lines(report), ""]
                text = "\n".join([*first, *second, *lines(tree)])
                print(text.encode("ascii", "backslashreplace").decode("ascii"))
        holds = all(one["holds"] for one in report["requirements"])
        raise SystemExit(3 if not report["memory"]["fits"] else 0 if holds else 4)
