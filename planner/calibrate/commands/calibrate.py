"""`dpplan calibrate`: measure this node, prove the measurement by training small models, compare
and merge nodes."""

from __future__ import annotations

import sys
import time
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


_BETWEEN_LINES_S = 10  # of progress that no terminal shows


def command(options: CalibrateOptions, out: Output) -> Answer:
    """Measure what estimates rest on, on this node, and write it for --calibration; with --verify,
    prove it on real training.

    Exit status: 0 done, 3 verified beyond --tolerance, 4 a rank was lost (what was measured is
    kept), 2 the request is wrong.
    """
    _check(options)
    from planner.calibrate import command as verb
    from planner.calibrate.settings import BEYOND, LOST, Failed
    from planner.calibrate.text import blocks
    from planner.views.view import View

    within = True
    document: Document
    try:
        if options.diff is not None:
            document = verb.difference(*options.diff)
        elif options.merge:
            document = verb.merged(options.merge, str(options.out))
        elif options.verify:
            with _shown(out.plain) as report:
                document = verb.verification(options, report)
            within = document.summary.within
        else:
            with _shown(out.plain) as report:
                document = verb.calibrate(options, report)
    except Failed as error:
        refuse("calibrate", None, str(error), out.json, str(error))
        raise SystemExit(LOST) from None
    return Answer(document, view=lambda: View.of(blocks(document)), status=0 if within else BEYOND)


def _check(options: CalibrateOptions) -> None:
    """Options that do not go together."""
    if sum((options.verify, options.diff is not None, bool(options.merge))) > 1:
        raise PlanError("--verify", None, "--verify, --diff and --merge are one command each")
    given = options.given()
    alone = next((n for n in ("case", "report", "calibration") if n in given), None)
    if not options.verify and alone is not None:
        raise PlanError(flag(alone), None, "goes with --verify")
    if options.storage is not None and (
        options.verify or options.diff is not None or options.merge
    ):
        raise PlanError("--storage", options.storage, "is for measuring: leave it out")
    if options.diff is None and not options.verify and options.out is None:
        raise PlanError("--out", None, "is needed: the file that --calibration will read")


@contextmanager
def _shown(plain: bool) -> Iterator[Callable[[Progress], None]]:
    """Progress on stderr: a bar with the time left on a terminal; elsewhere a line
    for a stage, every ten seconds."""
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
                bar.update(
                    task,
                    description=progress.stage,
                    completed=progress.done,
                    total=progress.of,
                    left=_left(progress),
                )

            yield report
        return
    printed_s: dict[str, float] = {}  # by stage

    def line(progress: Progress) -> None:
        now = time.monotonic()
        if now - printed_s.get(progress.stage, -_BETWEEN_LINES_S) >= _BETWEEN_LINES_S:
            printed_s[progress.stage] = now
            count = f"{progress.stage}: {progress.done} of {progress.of} done"
            print(f"{count}, {_left(progress)}", file=sys.stderr)

    yield line


def _left(progress: Progress) -> str:
    """Seconds that are left, and how quiet the machine is."""
    share = 100 * progress.disturbed_frac
    disturbed = f", {share:.0f} % of moments disturbed" if share else ""
    return f"at most {progress.left_s:.0f} s left{disturbed}"
