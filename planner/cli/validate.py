"""`dpplan validate`: measured runs against predictions."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    runs: Annotated[list[str], typer.Argument(help="CSV files (or folders of them) with the columns of docs/validation.md")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    calibration: Annotated[str | None, typer.Option("--calibration", help="Calibration file of a measured node")] = None,
    residuals: Annotated[
        str | None, typer.Option("--residuals", help="Write measured over predicted per run to this CSV")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """Estimate every measured run from its row alone and report the error per row, suite and in all."""
    from planner.cli.scenario import clear_errors, print_json

    with clear_errors(as_json):
        from planner import api, catalog

        out = api.validate([catalog.user_path(name, "RUNS.csv") for name in runs], calibration)
        if residuals is not None:
            api.write_residuals(out, catalog.user_path(residuals, "--residuals"))
        if as_json:
            print_json(out)
            return
        from planner.render import show_blocks, validate_blocks

        show_blocks(validate_blocks(out), plain)
