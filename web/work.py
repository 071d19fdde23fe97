"""Workers: processes that answer what may take long, with a time limit, and that end when no
request waits for their answer.

A thread per process hands it one job at a time. A job that runs out of time, or whose last waiter
has gone, ends with its process; the next job gets a new one, forked from a server that has already
imported the planner.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from typing import Any

from planner.specs.base import PlanError
from web import limits, parts, tasks
from web.state import Malformed

_KEPT = 256  # answers that are kept for the next who asks
_KEPT_BYTES = 48_000_000


class Busy(Exception):
    """Too many requests wait already."""


class Unstarted(Exception):
    """No worker process could be started."""


class Ended(Exception):
    """The process that worked on this was ended from outside."""


class Fault(Exception):
    """A fault of ours; what it was stands in the server's log."""


NO_ANSWER = (Busy, Unstarted, Ended, Fault)  # for which the request is not to blame


class Gone(Exception):
    """No request waits for this job any more."""


@dataclass
class Job:
    """One task; `waiters` counts the requests that want its answer."""

    name: str
    arguments: tuple[Any, ...]
    since: float = field(default_factory=time.monotonic)
    future: Future[Any] = field(default_factory=Future)
    waiters: int = 1
    process: Any = None
    dropped: bool = False
    parts: list[str] = field(default_factory=list)  # of the answer that are there before it


class Workers:
    """A few processes behind one queue. `lower` gives way to the light ones."""

    def __init__(self, count: int, limit_s: float, *, lower: bool = False) -> None:
        self.limit_s, self.lower = limit_s, lower
        self._queue: queue.Queue[Job | None] = queue.Queue(limits.MOST_WAITING)
        self._lock = threading.Lock()
        self._running: dict[Hashable, Job] = {}
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._count, self._threads = count, []  # type: int, list[threading.Thread]
        self._processes: set[Any] = set()
        self._up_since: float | None = None  # when the first process was ready

    def start(self) -> None:
        """Start the threads, and the first processes in the background."""
        with self._lock:
            if self._threads:
                return
            self._threads = [
                threading.Thread(target=self._serve, daemon=True) for _ in range(self._count)
            ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all threads and processes."""
        with self._lock:
            threads, self._threads = self._threads, []
            for process in tuple(self._processes):  # threads add to them meanwhile
                process.kill()
        for _ in threads:
            with contextlib.suppress(queue.Full):
                self._queue.put_nowait(None)

    def submit(self, name: str, arguments: tuple[Any, ...], key: Hashable = None) -> Job:
        """A job, or the one that already works on the same key, or its kept answer. Raises Busy."""
        self.start()
        with self._lock:
            if key is not None and key in self._kept:
                self._kept.move_to_end(key)
                done = Job(name, arguments)
                done.future.set_result(self._kept[key][0])
                return done
            running = None if key is None else self._running.get(key)
            if (
                running is not None and not running.dropped
            ):  # one that was dropped only waits for its process to end
                running.waiters += 1
                return running
            job = Job(name, arguments)
            try:
                self._queue.put_nowait(job)
            except queue.Full:
                raise Busy from None
            if key is not None:
                self._running[key] = job
        if key is not None:
            job.future.add_done_callback(lambda _: self._done(key, job))
        return job

    def leave(self, job: Job) -> None:
        """One waiter less; the last one takes the job along."""
        with self._lock:
            job.waiters -= 1
            if job.waiters > 0 or job.future.done():
                return
            job.dropped = True
            process = job.process
        job.future.cancel()
        if process is not None:
            process.kill()

    def _done(self, key: Hashable, job: Job) -> None:
        with self._lock:
            if self._running.get(key) is job:
                del self._running[key]
            if job.future.cancelled() or job.future.exception() is not None:
                return
            answer = job.future.result()
            size = len(answer) if isinstance(answer, bytes | str) else 0
            self._kept[key] = (answer, size)
            total = sum(s for _, s in self._kept.values())
            while len(self._kept) > _KEPT or (total > _KEPT_BYTES and len(self._kept) > 1):
                total -= self._kept.popitem(last=False)[1][1]

    def _serve(self) -> None:
        worker: tuple[Any, Connection] | None = None
        while True:
            worker = worker or self._new()
            job = self._queue.get()
            if job is None:
                if worker is not None:
                    worker[0].kill()
                return
            if job.dropped or not job.future.set_running_or_notify_cancel():
                continue
            # what waited for the first process to start has waited for no other request
            if time.monotonic() - max(job.since, self._up_since or 0.0) > self.limit_s:
                _fail(job, Busy())
                continue
            if worker is not None and not worker[0].is_alive():  # ended from outside since
                self._end(worker)
                worker = None
            worker = worker or self._new()  # what kept it from starting may have passed
            if worker is None:
                _fail(job, Unstarted())
                continue
            if not self._answer(worker, job):
                self._end(worker)
                worker = None

    def _end(self, worker: tuple[Any, Connection]) -> None:
        process, connection = worker
        process.kill()
        process.join()
        connection.close()
        self._processes.discard(process)

    def _new(self) -> tuple[Any, Connection] | None:
        """A process that is ready to work; None where the system gives none, or it ended before it
        was ready."""
        context = _context()
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self.lower), daemon=True)
        try:
            process.start()
            theirs.close()
            ours.recv()  # it is there: from now on seconds count
        except (EOFError, OSError):
            ours.close()
            return None
        self._processes.add(process)
        self._up_since = self._up_since or time.monotonic()
        return process, ours

    def _received(self, connection: Connection, job: Job) -> tuple[str, Any]:
        """The outcome of a job, its parts kept on the way; "late" where it takes too long. A job
        that sends parts has longer."""
        begun = time.monotonic()
        until = begun + self.limit_s
        while connection.poll(max(0.0, until - time.monotonic())):
            kind, answer = connection.recv()
            if kind != "part":
                return kind, answer
            job.parts.append(answer)
            until = begun + max(self.limit_s, limits.PARTS_S)
        return "late", None

    def _answer(self, worker: tuple[Any, Connection], job: Job) -> bool:
        """Whether the worker can go on."""
        process, connection = worker
        with self._lock:
            job.process = process
            if job.dropped:
                _fail(job, Gone())
                return True
        try:
            connection.send((job.name, job.arguments))
            kind, answer = self._received(connection, job)
            if kind == "late":
                _fail(
                    job,
                    PlanError(
                        "request",
                        None,
                        f"takes longer than the {self.limit_s:.0f} s of one request here; fix more"
                        " of the layout, or use the command line",
                    ),
                )
                return False
        except (EOFError, OSError):
            _fail(job, Gone() if job.dropped else Ended())
            return False
        with self._lock:
            job.process = None
            dropped = job.dropped
        if kind == "answer":
            _finish(job, answer)
        elif kind == "fault":
            _fail(job, Fault())
        else:
            _fail(job, (Malformed if kind == "malformed" else PlanError)(*answer))
        return kind != "memory" and not dropped  # the dropped one's process is being ended


def _fail(job: Job, error: Exception) -> None:
    with contextlib.suppress(Exception):  # a future that was cancelled meanwhile takes nothing
        job.future.set_exception(error)


def _finish(job: Job, answer: Any) -> None:
    with contextlib.suppress(Exception):
        job.future.set_result(answer)


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["web.warm"])
    return context


def start_forkserver() -> None:
    """Start the process that workers are forked from, deaf to Ctrl-C, which reaches every process
    of a terminal: it is the server that ends its workers. In the main thread."""
    _context()
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, heard)


def _work(connection: Connection, lower: bool) -> None:
    """The life of a worker process."""
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (limits.WORKER_BYTES, limits.WORKER_BYTES))
    if lower:
        with contextlib.suppress(OSError):
            os.nice(5)
    with contextlib.suppress(EOFError, OSError):  # the server has gone, and its workers with it
        connection.send("ready")
        parts.TO.set(lambda part: connection.send(("part", part)))
        while True:
            name, arguments = connection.recv()
            connection.send(outcome(tasks.task(name), arguments))


def outcome(task: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
    """Outcome of a task: its answer, a wrong request, too little memory, or a fault of ours."""
    try:
        answer = task(*arguments)
        if isinstance(answer, bytes) and len(answer) > limits.MAX_ANSWER_BYTES:
            return "wrong", (
                "request",
                None,
                "has an answer too large to send; ask for less, or use the command line",
            )
        return "answer", answer
    except PlanError as error:
        shown = (
            error.value
            if error.value is None or isinstance(error.value, bool | int | float | str)
            else str(error.value)
        )
        kind = "malformed" if isinstance(error, Malformed) else "wrong"
        return kind, (error.field, shown, error.remedy)
    except MemoryError:
        return "memory", (
            "request",
            None,
            f"needs more than the {limits.WORKER_BYTES / 2**30:.0f} GiB of memory that one request"
            " may take here; fix more of the layout, or use the command line",
        )
    except RecursionError:
        return "wrong", ("request", None, "is nested too deeply")
    except Exception:  # the process goes on; the request is answered as a fault
        traceback.print_exc()
        return "fault", None
