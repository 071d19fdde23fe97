"""From a request to an answer: in this process where it is quick, else by a worker that ends when
the browser has gone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.requests import Request

from web import limits, tasks
from web.state import State, of_pairs
from web.work import Gone, Job, Workers

Pairs = list[tuple[str, str]]

_CORES = max(1, min(4, os.cpu_count() or 1))
_PATIENCE_S = 0.1  # between looks whether the browser is still there

LIGHT = Workers(_CORES, limits.LIGHT_S)
HEAVY = Workers(_CORES, limits.HEAVY_S, lower=True)
# two threads: the work holds the interpreter, more would only make everyone wait longer
_inline = ThreadPoolExecutor(2, thread_name_prefix="inline")

_LIGHT = {"what_if", "estimate", "inputs", "canonical", "table"}


def is_quick(state: State) -> bool:
    """Whether a state leaves so few layouts, and so short a schedule, that a worker would cost more
    than it saves."""
    o = state.options
    if (
        state.files
        or o.tp is None
        or o.pp is None
        or o.micro_batch is None
        or o.recompute is None
        or o.global_batch is None
    ):
        return False
    if o.pp > 1 and (o.vpp is None or o.schedule is None):
        return False
    dp = max(1, o.gpus // (o.tp * o.pp * (o.cp or 1)))
    actions = o.pp * (o.vpp or 1) * max(1, o.global_batch // (dp * o.micro_batch))
    return o.pp <= limits.INLINE_STAGES and actions <= limits.INLINE_ACTIONS


async def what_if(request: Request, state: State, tables: bool = True) -> bytes:
    """The view of a state."""
    if is_quick(state):
        return await asyncio.get_running_loop().run_in_executor(
            _inline, tasks.what_if, state.pairs, tables
        )
    return await worked(request, "what_if", state.pairs, tables, key=_key("what_if", state, tables))


async def of_state(request: Request | None, name: str, state: State, *more: Any) -> bytes:
    """The answer of a task to a state; answers without pasted texts are kept for a while."""
    if name == "estimate" and is_quick(state) and not more:
        return await worked(request, name, state.pairs)
    return await worked(request, name, state.pairs, *more, key=_key(name, state, *more))


def _key(name: str, state: State, *more: Any) -> Hashable:
    return (name, state.query, repr(more)) if state.is_shared else None


def submitted(name: str, *arguments: Any, key: Hashable = None) -> Job:
    """A job under way. Raises Busy."""
    return (LIGHT if name in _LIGHT else HEAVY).submit(name, arguments, key)


async def worked(
    request: Request | None, name: str, *arguments: Any, key: Hashable = None
) -> bytes:
    """The answer of a worker. When the browser of the request, if there is one, goes away, so does
    the work."""
    workers = LIGHT if name in _LIGHT else HEAVY
    return await waited(request, workers, workers.submit(name, arguments, key))


async def waited(request: Request | None, workers: Workers, job: Job) -> bytes:
    """What a job comes to, as long as somebody waits for it."""
    future = asyncio.wrap_future(job.future)
    future.add_done_callback(
        lambda f: f.cancelled() or f.exception()
    )  # seen, also where nobody waits any more
    try:
        while True:
            done, _ = await asyncio.wait({future}, timeout=_PATIENCE_S)
            if done:
                return future.result()
            if request is not None and await request.is_disconnected():
                raise Gone
    finally:
        if not job.future.done():
            workers.leave(job)


def state_of(request: Request, *without: str) -> State:
    """The state that an address holds, without the keys of the endpoint itself."""
    return of_pairs((k, v) for k, v in request.query_params.multi_items() if k not in without)
