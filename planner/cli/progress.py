"""A progress bar on stderr for what takes longer than a second, only where a person watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_QUIET_S = 1.0  # what is over sooner needs no bar


@contextmanager
def progress(title: str) -> Iterator[Callable[[float], None] | None]:
    """A function to call with the share that is done; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    started = time.perf_counter()
    bar: Any = None
    task: Any = None

    def tick(share: float) -> None:
        nonlocal bar, task
        if bar is None:
            if time.perf_counter() - started < _QUIET_S:
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
            task = bar.add_task(title, total=1.0)
        bar.update(task, completed=share)

    try:
        yield tick
    finally:
        if bar is not None:
            bar.stop()
