"""From a request to an answer by a worker: what takes time or memory is never done by the server's
own process. Work ends when the browser has gone."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Hashable
from typing import Any

from starlette.requests import Request

from planner.specs.base import PlanError
from web import limits
from web.guard import EMBED
from web.state import TEXTS, Pairs
from web.work import Gone, Job, Workers

_CORES = max(1, min(limits.MOST_WORKERS, os.cpu_count() or 1))
_PATIENCE_S = 0.1  # between looks whether the browser is still there

LIGHT = Workers(_CORES, limits.LIGHT_S)
HEAVY = Workers(_CORES, limits.HEAVY_S, lower=True)

_LIGHT = {
    "what_if",
    "estimate",
    "inputs",
    "choices",
    "exports",
    "table",
    "scenario",
    "repaired",
    "tab_form",
}


def pairs_of(request: Request, *without: str) -> Pairs:
    """Options of an address, without the keys of the endpoint itself."""
    left = {*without, EMBED}
    return [(k, v) for k, v in request.query_params.multi_items() if k not in left]


def _at_once() -> float:
    return 0.0


def _unheard(_: str) -> None:
    pass


async def answer(
    request: Request,
    name: str,
    *arguments: Any,
    linger_s: Callable[[], float] = _at_once,
    heard: Callable[[str], None] = _unheard,
) -> bytes:
    """The answer of a worker to a task; answers without pasted texts are kept for a while.

    linger_s: seconds for which the work goes on when the browser of the request has gone. heard:
    takes the parts of the answer that are there before it.
    """
    workers, job = _submitted(name, arguments)
    return await _waited(request, workers, job, linger_s, heard)


async def prepared(name: str, *arguments: Any) -> bytes:
    """The answer of a worker to a task before any request for it, kept for the first request."""
    _, job = _submitted(name, arguments)
    return await asyncio.wrap_future(job.future)


def _submitted(name: str, arguments: tuple[Any, ...]) -> tuple[Workers, Job]:
    """A task with the workers that answer it."""
    workers = LIGHT if name in _LIGHT else HEAVY
    return workers, workers.submit(name, arguments, _key(name, arguments))


async def read(request: Request, name: str, *arguments: Any) -> Any:
    """The answer as plain values, of which the server makes a page. Raises PlanError."""
    return plain(await answer(request, name, *arguments))


def plain(content: bytes) -> Any:
    """An answer as plain values: a small one, since the server does nothing else meanwhile."""
    if len(content) > limits.MAX_READ_BYTES:
        raise PlanError("request", None, "has an answer too large for a page; ask for less")
    return json.loads(content)


def _key(name: str, arguments: tuple[Any, ...]) -> Hashable:
    """Cache key of an answer; None where the answer cannot be shared."""
    pairs = arguments[0]
    if not isinstance(pairs, list) or any(name in TEXTS for name, _ in pairs):
        return None
    return (name, tuple(pairs), repr(arguments[1:]))


async def _waited(
    request: Request,
    workers: Workers,
    job: Job,
    linger_s: Callable[[], float],
    heard: Callable[[str], None] = _unheard,
) -> bytes:
    """Result of a job, as long as a client waits for it."""
    future = asyncio.wrap_future(job.future)
    future.add_done_callback(
        lambda f: f.cancelled() or f.exception()
    )  # recorded, also where the client has left
    gone: float | None = None  # since when the browser is
    seen = 0
    try:
        while True:
            done, _ = await asyncio.wait({future}, timeout=_PATIENCE_S)
            if done:
                return future.result()
            for part in job.parts[seen:]:
                heard(part)
                seen += 1
            if gone is None and await request.is_disconnected():
                gone = time.monotonic()
            if gone is not None and time.monotonic() - gone >= linger_s():
                raise Gone
    finally:
        if not job.future.done():
            workers.leave(job)
