"""`dpplan batch`: time to a target against the number of GPUs when the batch must grow."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.options import with_request_options

_OWN, _OUT = "Batch and target", "Output"


@with_request_options
def command(
    given: dict[str, Any],
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep",
            help=(
                "gpus=64..4096 (doubling), gpus=64..512+64 or a list; default: --gpus and six"
                " doublings"
            ),
            rich_help_panel=_OWN,
        ),
    ] = None,
    critical_batch: Annotated[
        str | None,
        typer.Option(
            "--critical-batch", help="Critical batch in tokens, e.g. 4M", rich_help_panel=_OWN
        ),
    ] = None,
    target_loss: Annotated[
        float | None,
        typer.Option(
            "--target-loss",
            help="Loss in nats per token: critical batch by Kaplan et al. 2020",
            rich_help_panel=_OWN,
        ),
    ] = None,
    gradient_norm: Annotated[
        list[str] | None,
        typer.Option(
            "--gradient-norm",
            help=(
                "BATCH:NORM, given twice: sequences and root mean square norm of the gradient;"
                " critical batch by noise scale"
            ),
            rich_help_panel=_OWN,
        ),
    ] = None,
    reference_batch: Annotated[
        int | None,
        typer.Option(
            "--reference-batch",
            help=(
                "Sequences of the batch that --tokens and --learning-rate are of; default: that of"
                " the first count"
            ),
            rich_help_panel=_OWN,
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            "--learning-rate", help="Learning rate of the reference batch", rich_help_panel=_OWN
        ),
    ] = None,
    warmup: Annotated[
        str | None,
        typer.Option(
            "--warmup", help="Tokens of warm-up, kept over batches, e.g. 8B", rich_help_panel=_OWN
        ),
    ] = None,
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
        typer.Option(
            "--csv",
            help="Write one line per regime and number of GPUs to this CSV",
            rich_help_panel=_OUT,
        ),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option("--html", help="Write charts and tables to this page", rich_help_panel=_OUT),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """Days, cost and learning rate to the same loss over GPUs: batch kept, grown with them, or
    best; and why it saturates.

    Exit status: 0 something fits, 3 nothing fits, 2 the request is wrong, 130 interrupted.
    """
    from planner.cli.scenario import check_results, clear_errors, merge, print_json, write_text

    with clear_errors(as_json):
        from planner.cli.progress import processes, progress
        from planner.verbs import batch

        check_results({"--csv": table, "--html": html}, given)
        asked = batch.Asked(
            sweep=sweep,
            critical_batch=critical_batch,
            target_loss=target_loss,
            gradient_norms=gradient_norm or (),
            reference_batch=reference_batch,
            learning_rate=learning_rate,
            warmup=warmup,
            stop_below=stop_below,
            jobs=processes(jobs),
        )
        with progress("requests", plain) as tick:
            out = batch.batch(asked, merge(given), tick)
            texts = {}  # of all results, before the first is written
            if table is not None:
                texts["--csv"] = table, batch.csv_text(out)
            if html is not None:
                from planner.show import batch_page

                texts["--html"] = html, batch_page.page(out)
        for option, (name, text) in texts.items():
            write_text(name, option, text)
        if as_json:
            print_json(out)
        else:
            from planner.show.batch import batch_blocks
            from planner.show.text import show_blocks

            show_blocks(batch_blocks(out), plain)
        fits = any(p["fits"] for curve in out["regimes"].values() for p in curve["points"])
        raise SystemExit(0 if fits else 3)
