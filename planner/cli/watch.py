"""What long commands show while they run, and how Ctrl-C ends them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTED = 130  # exit status of a command ended by Ctrl-C: 128 + SIGINT
_QUIET_S = 1.0  # commands that take no longer show nothing


@contextmanager
def shown(what: str, plain: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A function to call with (done, all): after a second a terminal shows a bar on stderr. Ctrl-C ends with status 130.

    Results are written after this block, whole or not at all, so that an interrupted command leaves what was there.
    """
    started = time.monotonic()
    bar = None
    task = None

    def report(done: int, whole: int) -> None:
        nonlocal bar, task
        if bar is None:
            if plain or not sys.stderr.isatty() or time.monotonic() - started < _QUIET_S or done >= whole:
                return
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            bar = Progress(*columns, console=Console(stderr=True), transient=True)
            bar.start()
            task = bar.add_task(what, total=whole)
        assert task is not None
        bar.update(task, completed=done, total=whole)

    try:
        yield report
    except KeyboardInterrupt:
        if bar is not None:
            bar.stop()
            bar = None
        print("interrupted: nothing was written", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    finally:
        if bar is not None:
            bar.stop()


def processes(asked: int | None) -> int:
    """Processes of `--jobs`: as asked, else as many as this machine has cores, eight at most."""
    import os

    return asked if asked is not None else min(8, os.cpu_count() or 1)
