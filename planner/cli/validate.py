"""`dpplan validate`: measured runs against predictions."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            help=(
                "CSV files (or folders of them) with the columns of docs/validation.md; default:"
                " the shipped runs"
            )
        ),
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option("--suite", help="Only runs of this suite; may be given again"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    calibration: Annotated[
        str | None, typer.Option("--calibration", help="Calibration file of a measured node")
    ] = None,
    coverage: Annotated[
        bool,
        typer.Option(
            "--coverage",
            help="Bands of each suite from all other suites: do they hold what they promise",
        ),
    ] = False,
    ablations: Annotated[
        bool,
        typer.Option(
            "--ablations", help="Error with each mechanism switched off, nothing fitted again"
        ),
    ] = False,
    cross_validation: Annotated[
        bool,
        typer.Option(
            "--cross-validate",
            help="Errors where models, GPU counts or suites were left out of a fit; under a minute",
        ),
    ] = False,
    table: Annotated[
        str | None, typer.Option("--csv", help="Write one line per row to this CSV")
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option("--plot", help="Write predicted against measured to this HTML page"),
    ] = None,
    residuals: Annotated[
        str | None,
        typer.Option(
            "--residuals",
            help="Write measured over predicted, fitted without the run's suite, to this CSV",
        ),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """Estimate every measured run from its row alone and report the error per row, suite and in
    all."""
    from planner.cli.scenario import clear_errors, print_json

    with clear_errors(as_json):
        from planner import api
        from planner.inputs import catalog

        paths = [catalog.user_path(name, "RUNS.csv") for name in runs or ()]
        asked = (
            ("--csv", table, api.write_runs),
            ("--plot", plot, api.write_plot),
            ("--residuals", residuals, api.write_residuals),
        )
        files = [
            (write, catalog.user_path(name, option))
            for option, name, write in asked
            if name is not None
        ]
        for i, (_, path) in enumerate(
            files
        ):  # a result must replace neither what it was made from nor another result
            if path.absolute() in {
                other.absolute() for other in (*paths, *(p for _, p in files[:i]))
            }:
                raise api.PlanError(
                    "RUNS.csv",
                    str(path),
                    "is named twice in this command; give each result its own file",
                )
        out = api.validate(
            paths,
            calibration,
            suite or (),
            coverage=coverage,
            ablations=ablations,
            cross_validation=cross_validation,
            unseen=residuals is not None,
        )
        for write, path in files:
            write(out, path)
        if as_json:
            print_json(out)
            return
        from planner.show.text import show_blocks
        from planner.show.validate import validate_blocks

        show_blocks(validate_blocks(out), plain)
