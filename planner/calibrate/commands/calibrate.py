"""`dpplan calibrate`: measure this node, prove the measurement by training small models, compare
and merge nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from planner.calibrate.options import CalibrateOptions
from planner.cli.finish import Answer
from planner.cli.refusal import refuse
from planner.error import PlanError
from planner.specs.options import flag
from planner.specs.options.own import Output

if TYPE_CHECKING:
    from planner.calibrate.settings import Progress
    from planner.calibrate.text import Document


def command(own: CalibrateOptions, out: Output) -> Answer:
    """Measure what estimates rest on, on this node, and write it for --calibration; with --verify,
    prove it on real training.

    Exit status: 0 done, 3 verified beyond --tolerance, 4 a rank was lost (what was measured is
    kept), 2 the request is wrong.
    """
    _check(own)
    from planner.calibrate import command as verb
    from planner.calibrate.settings import BEYOND, LOST, Failed
    from planner.calibrate.text import blocks
    from planner.views.view import View

    within = True
    found: Document
    try:
        if own.diff is not None:
            found = verb.difference(*own.diff)
        elif own.merge:
            found = verb.merged(own.merge, str(own.out))
        elif own.verify:
            with _shown(out.plain) as report:
                found = verb.verification(own, report)
            within = found.summary.within
        else:
            with _shown(out.plain) as report:
                found = verb.calibrate(own, report)
    except Failed as error:
        refuse("calibrate", None, str(error), out.json, str(error))
        raise SystemExit(LOST) from None
    return Answer(found, view=lambda: View.of(blocks(found)), status=0 if within else BEYOND)


def _check(own: CalibrateOptions) -> None:
    """Options that do not go together."""
    if sum((own.verify, own.diff is not None, bool(own.merge))) > 1:
        raise PlanError("--verify", None, "--verify, --diff and --merge are one command each")
    given = own.given()
    alone = next((n for n in ("case", "report", "calibration") if n in given), None)
    if not own.verify and alone is not None:
        raise PlanError(flag(alone), None, "goes with --verify")
    if own.storage is not None and (own.verify or own.diff is not None or own.merge):
        raise PlanError("--storage", own.storage, "is for measuring: use only --out")
    if own.diff is None and not own.verify and own.out is None:
        raise PlanError("--out", None, "is needed: the file that --calibration will read")


@contextmanager
def _shown(plain: bool) -> Iterator[Callable[[Progress], None]]:
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

            def report(progress: Progress) -> None:
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

            yield report
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
