"""`dpplan strategies`: every way of keeping replicas in step."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.options import with_request_options

_OWN = "Strategies"


@with_request_options
def command(
    given: dict[str, Any],
    strategy: Annotated[
        str | None, typer.Option("--strategy", help="Only this one, in full", rich_help_panel=_OWN)
    ] = None,
    local_steps: Annotated[
        int | None,
        typer.Option(
            "--local-steps",
            help="Steps between exchanges of local SGD (8) and DiLoCo (500)",
            rich_help_panel=_OWN,
        ),
    ] = None,
    rank: Annotated[
        int | None, typer.Option("--rank", help="Rank of PowerSGD (4)", rich_help_panel=_OWN)
    ] = None,
    density: Annotated[
        float | None,
        typer.Option(
            "--density", help="Share of gradients that top-k sends (0.001)", rich_help_panel=_OWN
        ),
    ] = None,
    servers: Annotated[
        int | None,
        typer.Option("--servers", help="Parameter servers (one per node)", rich_help_panel=_OWN),
    ] = None,
    slack: Annotated[
        int | None,
        typer.Option(
            "--slack",
            help="Steps that workers may be apart under bounded staleness (3)",
            rich_help_panel=_OWN,
        ),
    ] = None,
    backups: Annotated[
        int | None,
        typer.Option(
            "--backups",
            help="Workers whose gradients are dropped in each step (1)",
            rich_help_panel=_OWN,
        ),
    ] = None,
    steps_factor: Annotated[
        float | None,
        typer.Option(
            "--steps-factor",
            help="Steps to the same loss over those of exact training",
            rich_help_panel=_OWN,
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="With --strategy: the formulas with numbers and sources",
            rich_help_panel=_OWN,
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """Compare every way of keeping replicas in step: memory, time, bytes sent, and time to the same
    loss.

    Exit status: 0 something fits, 3 nothing fits, 2 the request is wrong.
    """
    from planner.cli.scenario import clear_errors, merge, print_json

    with clear_errors(as_json):
        from planner import api
        from planner.specs.base import PlanError
        from planner.specs.options import only_for
        from planner.verbs import strategies

        if explain and strategy is None:
            raise PlanError("--explain", None, "explains one strategy: name it with --strategy")
        own = {
            "local_steps": local_steps,
            "rank": rank,
            "density": density,
            "servers": servers,
            "slack": slack,
            "backups": backups,
            "steps_factor": steps_factor,
        }
        options, chosen = api.read_options(merge(given)), strategies.settings(own)
        only_for(options, "strategies")
        found = strategies.answer(options, chosen, strategy)
        tree = strategies.explain(options, chosen, strategy) if explain and strategy else None
        if as_json:
            from planner.show.explain import nested

            print_json(found if tree is None else {**found, "explain": nested(tree)})
        else:
            from planner.show.strategies import strategy_blocks
            from planner.show.text import show_blocks

            show_blocks(strategy_blocks(found), plain)
            if tree is not None:
                from planner.show.explain import lines

                print("\n".join(lines(tree)).encode("ascii", "backslashreplace").decode("ascii"))
        raise SystemExit(0 if found["fits"] else 3)
