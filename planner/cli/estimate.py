"""`dpplan estimate`: the answer for one request."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.options import with_request_options


@with_request_options
def command(
    given: dict[str, Any],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print the tree of formulas with numbers and sources")] = False,
    trace: Annotated[
        str | None, typer.Option("--trace", help="Write the timeline of the step for ui.perfetto.dev to this file")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """Estimate memory, step time and cost; what is left out of the layout is searched.

    Exit status: 0 answered and fits, 3 answered and nothing fits, 2 the request is wrong.
    """
    from planner.cli.scenario import clear_errors, merge, print_json

    with clear_errors(as_json):
        from planner import api

        options = api.read_options(merge(given))
        if explain:
            from planner.cli.tree import nested

            report, tree = api.explain(options)
            report["explain"] = nested(tree)
        else:
            report = api.estimate(options)
        if trace is not None:
            from planner import pipelines
            from planner.cli.scenario import write_text

            write_text(trace, "--trace", pipelines.step_trace_text(options))
        if as_json:
            print_json(report)
        else:
            from planner.render import estimate_blocks, show_blocks

            show_blocks(estimate_blocks(report), plain)
            if explain:
                from planner.cli.tree import lines, machine_lines

                text = "\n".join([*machine_lines(report["machine"]), "", *lines(tree)])
                print(text.encode("ascii", "backslashreplace").decode("ascii"))
        raise SystemExit(0 if report["memory"]["fits"] else 3)
