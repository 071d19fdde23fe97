"""Progress of long commands: a bar on stderr after a second, only on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_QUIET_S = 1.0  # what is over sooner needs no bar


@contextmanager
def progress(title: str, plain: bool = False) -> Iterator[Callable[..., None] | None]:
    """A function to call with the share that is done, or with (done, all); None without a terminal.

    Results are written after this block, whole or not at all, so that an interrupted command leaves
    what was there.
    """
    if plain or not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    bar: Any = None
    task: Any = None

    def tick(done: float, whole: float = 1.0) -> None:
        nonlocal bar, task
        if bar is None:
            if time.monotonic() - started < _QUIET_S or done >= whole:
                return
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:.0f} %"),
                TimeRemainingColumn(),
            )
            bar = Progress(*columns, console=Console(stderr=True), transient=True)
            bar.start()
            task = bar.add_task(title, total=whole)
        bar.update(task, completed=done, total=whole)

    try:
        yield tick
    finally:
        if bar is not None:
            bar.stop()
