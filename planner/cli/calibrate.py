"""`dpplan calibrate`: measure this node, prove the measurement by training small models, compare
and merge nodes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from planner.calibrate.settings import Progress

_MEASURE, _PROVE, _FILES = "Measure", "Prove", "Files of several nodes"


def command(
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            help="Write the calibration to this .toml; raw records lie beside it",
            rich_help_panel=_MEASURE,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="About a minute, for a first look", rich_help_panel=_MEASURE),
    ] = False,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough", help="More shapes and sizes, up to an hour", rich_help_panel=_MEASURE
        ),
    ] = False,
    processes: Annotated[
        int,
        typer.Option(
            "--processes",
            help="Ranks on this machine; more machines: torchrun",
            rich_help_panel=_MEASURE,
        ),
    ] = 1,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            help="CPU threads of a rank; default: cores over ranks",
            rich_help_panel=_MEASURE,
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            help="Seconds after which a rank that does not come is named",
            rich_help_panel=_MEASURE,
        ),
    ] = 120.0,
    storage: Annotated[
        str | None,
        typer.Option(
            "--storage",
            help="Folder that checkpoints go to; default: that of --out",
            rich_help_panel=_MEASURE,
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Train decoders and compare with the estimate", rich_help_panel=_PROVE
        ),
    ] = False,
    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration", help="File to verify; default: shipped profile", rich_help_panel=_PROVE
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance",
            help="Mean error above which the exit status is 3",
            rich_help_panel=_PROVE,
        ),
    ] = 0.1,
    case: Annotated[
        list[str] | None,
        typer.Option(
            "--case",
            help=(
                "Own decoder:"
                " layers=4,hidden=512,heads=8,ffn=2048,vocab=8192,seq=256,micro_batch=2; may be"
                " given again"
            ),
            rich_help_panel=_PROVE,
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            "--precision",
            help="fp32, bf16 or fp16; default: fp32 on CPUs, bf16 on GPUs",
            rich_help_panel=_PROVE,
        ),
    ] = None,
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            help="Write report.md, .html and .json to this folder",
            rich_help_panel=_PROVE,
        ),
    ] = None,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--diff", help="Compare two nodes: largest loss first", rich_help_panel=_FILES
        ),
    ] = None,
    merge: Annotated[
        list[str] | None,
        typer.Option(
            "--merge", help="Join files of nodes of a kind into --out", rich_help_panel=_FILES
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """Measure what estimates rest on, on this node, and write it for --calibration; with --verify,
    prove it on real training.

    Exit status: 0 done, 3 verified beyond --tolerance, 4 a rank was lost (what was measured is
    kept), 2 the request is wrong.
    """
    from planner.cli.scenario import clear_errors, print_json, refuse

    with clear_errors(as_json):
        from planner.calibrate import command as verb
        from planner.calibrate.settings import LOST, Failed
        from planner.specs.base import PlanError

        if quick and thorough:
            raise PlanError("--quick", None, "goes against --thorough; give one of them")
        if sum((verify, diff is not None, bool(merge))) > 1:
            raise PlanError("--verify", None, "--verify, --diff and --merge are one command each")
        if precision not in (None, "fp32", "bf16", "fp16"):
            raise PlanError("--precision", precision, "must be fp32, bf16 or fp16")
        if not verify and (case or report or calibration):
            raise PlanError(
                "--case" if case else "--report" if report else "--calibration",
                None,
                "goes with --verify",
            )
        if storage is not None and (verify or diff is not None or merge):
            raise PlanError("--storage", storage, "goes with measuring: --out alone")
        if diff is None and not verify and out is None:
            raise PlanError("--out", None, "is needed: the file that --calibration will read")
        mode: Any = "quick" if quick else "thorough" if thorough else "default"
        status = 0
        try:
            if diff is not None:
                found: Any = {
                    "schema_version": 1,
                    "first": diff[0],
                    "second": diff[1],
                    "numbers": verb.difference(*diff),
                }
            elif merge:
                found = {"schema_version": 1, **verb.merged(merge, str(out))}
            elif verify:
                with _shown(plain) as told:
                    found = verb.verification(
                        calibration,
                        mode,
                        threads,
                        processes,
                        timeout,
                        tolerance,
                        case or (),
                        report,
                        precision,
                        told,
                    )
                status = 0 if found["summary"]["within"] else 3
            else:
                with _shown(plain) as told:
                    found = {
                        "schema_version": 1,
                        **verb.calibrate(
                            str(out), mode, threads, processes, timeout, storage, told
                        ),
                    }
        except Failed as error:
            refuse("calibrate", None, str(error), as_json, str(error))
            raise SystemExit(LOST) from None
        if as_json:
            print_json(found)
        else:
            from planner.calibrate.text import blocks
            from planner.show.text import show_blocks

            show_blocks(blocks(found), plain)
    raise SystemExit(status)


@contextmanager
def _shown(plain: bool) -> Iterator[Any]:
    """Progress on stderr: a bar with the time left on a terminal, a line per stage elsewhere."""
    if sys.stderr.isatty() and not plain:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[left]}"),
        )
        with Bar(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("start", total=None, left="")

            def told(progress: Progress) -> None:
                disturbed = (
                    f", {100 * progress.disturbed_frac:.0f} % of moments disturbed"
                    if progress.disturbed_frac
                    else ""
                )
                bar.update(
                    task,
                    description=progress.stage,
                    completed=progress.done,
                    total=progress.of,
                    left=f"at most {progress.left_s:.0f} s left{disturbed}",
                )

            yield told
        return
    stages: set[str] = set()

    def line(progress: Progress) -> None:
        if progress.stage not in stages:
            stages.add(progress.stage)
            print(
                f"{progress.stage}: {progress.done} of {progress.of} done, at most"
                f" {progress.left_s:.0f} s left",
                file=sys.stderr,
            )

    yield line
