"""Parts of an answer that a worker sends before the whole is there: how far it has come, and what
is known already."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar

from web.render import rendered
from web.texts import text

TO: ContextVar[Callable[[str], None] | None] = ContextVar("to", default=None)
"""Takes the parts of the task that runs; None where no client waits for parts."""

_EVERY_S = 0.25  # between two counts


def meanwhile(answer: str) -> None:
    """An answer to less than was asked, as a part of the page."""
    if to := TO.get():
        to(rendered("meanwhile.html", answer=answer))


def counting() -> Callable[[int, int], None]:
    """Takes (done, of all) while a verb works, and sends it now and then."""
    last = 0.0

    def count(done: int, total: int) -> None:
        nonlocal last
        to = TO.get()
        if to and time.monotonic() - last >= _EVERY_S:
            last = time.monotonic()
            to(rendered("waiting_of.html", said=text("progress", done=done, total=total)))

    return count
