"""Processes that share the work of a verb: processes of this machine, or of a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import planner
from planner.inputs import catalog
from planner.specs.base import PlanError

if TYPE_CHECKING:
    from concurrent.futures import Executor

_MOST_PROCESSES = 8
_ANSWERS_S = 10  # that a scheduler may take to answer

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]  # done, in all


@dataclass
class Workers:
    """Processes of the open block of `workers`. are_up: they have been started, which takes a
    second on this machine; remote: they belong to a cluster, so that their work does not slow down
    this machine."""

    pool: Executor
    count: int
    are_up: bool
    remote: bool


_open: ContextVar[Workers | None] = ContextVar("worker processes", default=None)


def shared() -> Workers | None:
    """The processes of the block of `workers` that is open."""
    return _open.get()


def processes(jobs: int | None) -> int:
    """Number of processes that share the work: the workers of an open cluster, else `--jobs`, else
    the cores of this machine, at most eight."""
    pool = shared()
    if pool is not None and pool.remote:
        return pool.count
    return jobs if jobs is not None else min(_MOST_PROCESSES, os.cpu_count() or 1)


@contextmanager
def workers(jobs: int | None, dask: str | None = None) -> Iterator[None]:
    """Inside the block, all that is dealt out shares this many processes of this machine, which
    start with the first that needs them, or the workers of the Dask scheduler at this address. A
    block inside another shares the processes of the outer one."""
    if _open.get() is not None or (dask is None and processes(jobs) <= 1):
        yield
        return
    if jobs is not None and dask is not None:
        raise PlanError("--jobs", jobs, "counts processes of this machine: leave it out, or --dask")
    with _local(processes(jobs)) if dask is None else _cluster(dask) as pool:
        token = _open.set(pool)
        try:
            yield
        finally:
            _open.reset(token)


@contextmanager
def dealt(
    function: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Iterator[Iterator[Result]]:
    """The result of each item in turn, from this many processes."""
    pool = shared()
    alone = pool is None and (jobs <= 1 or len(items) <= 1)
    with nullcontext() if alone else workers(jobs):
        pool = shared()
        if pool is None or (jobs <= 1 and not pool.remote):
            yield map(function, items)
            return
        # which processes of this machine inherit until they are up
        with nullcontext() if pool.remote else _interrupts_ignored():
            results = pool.pool.map(function, items)
        pool.are_up = True
        yield results


@contextmanager
def _local(jobs: int) -> Iterator[Workers]:
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor

    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _end_quietly)
    try:
        yield Workers(pool, jobs, are_up=False, remote=False)
    except BrokenProcessPool as error:
        raise PlanError(
            "--jobs", jobs, "worker processes end at once or were killed; use --jobs 1"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _cluster(address: str) -> Iterator[Workers]:
    """The workers of a scheduler, all of which have this dpplan. What a lost worker had, others do
    again."""
    try:
        from distributed import Client, KilledWorker
    except ImportError as error:
        raise PlanError(
            "--dask", address, "needs the package distributed (extra `dask` of dpplan)"
        ) from error
    try:
        client = Client(address, timeout=_ANSWERS_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise PlanError(
            "--dask",
            address,
            "is not an address at which a scheduler answers, such as tcp://10.0.0.1:8786; `dask"
            " scheduler` starts one and prints its own",
        ) from error
    with client:
        _check_alike(address, client.run(edition, on_error="return"))
        pool = client.get_executor(pure=False)
        try:
            yield Workers(pool, sum(client.nthreads().values()), are_up=True, remote=True)
        except KilledWorker as error:
            raise PlanError(
                "--dask",
                address,
                "lost several workers with the same part of the work; give them more memory, or ask"
                " for less",
            ) from error
        finally:
            pool.shutdown(wait=False)


def _check_alike(address: str, editions: dict[str, object]) -> None:
    """Refuse workers that would not answer as this process does. editions: theirs, or errors, by
    address."""
    if not editions:
        raise PlanError(
            "--dask", address, f"has a scheduler without workers; `dask worker {address}` adds one"
        )
    here = edition()
    for worker, theirs in editions.items():
        if theirs != here:
            raise PlanError(
                "--dask",
                address,
                f"worker {worker} has another dpplan ({theirs}; here {here}): install the same on"
                " every machine",
            )


def edition() -> str:
    """The version of dpplan, with a digest of its code and data."""
    digest = blake2b(digest_size=6)
    for root in (Path(planner.__file__).parent, catalog.profiles_folder()):
        for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".toml", ".csv")):
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return f"{version('dpplan')}+{digest.hexdigest()}"


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ctrl-C does nothing, for the moment that it takes to start processes."""
    if threading.current_thread() is not threading.main_thread():  # only that may set handlers
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _end_quietly() -> None:
    """Ctrl-C reaches every process of a terminal: these end without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
