"""Start workers on this machine, watch them, and say which one died or hangs. Elsewhere torchrun
starts them."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from planner.calibrate.settings import Settings, environment
from planner.specs.base import PlanError

_POLL_S = 0.2
_GRACE_S = 12.0  # for the others to name the rank that is lost before they are stopped
_KEPT = 4000  # characters of a worker's stderr that are kept

Message = dict[str, Any]


class Failed(RuntimeError):
    """The run ended early; the message names the rank. What was measured is kept."""


@dataclass
class _Worker:
    rank: int
    process: subprocess.Popen[str]
    seen: float = field(default_factory=time.monotonic)
    doing: str = "the start"
    errors: str = ""
    finished: bool = False


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _read(worker: _Worker, messages: queue.Queue[tuple[_Worker, Message]]) -> None:
    assert worker.process.stdout is not None
    for line in worker.process.stdout:
        with contextlib.suppress(ValueError):  # what libraries print
            message = json.loads(line)
            if isinstance(message, dict):
                messages.put((worker, message))


def _read_errors(worker: _Worker) -> None:
    assert worker.process.stderr is not None
    for line in worker.process.stderr:
        worker.errors = (worker.errors + line)[-_KEPT:]


def run(
    settings: Settings,
    processes: int,
    told: Callable[[Message], None],
    hook: Callable[[int, int], None] | None = None,
) -> Message:
    """Run `processes` ranks to their end; returns what rank 0 found. Raises Failed naming the rank,
    or PlanError.

    told: receives progress of rank 0; hook(rank, pid) is called once per started rank (tests kill
    one through it).
    """
    port = _free_port()
    workers: list[_Worker] = []
    messages: queue.Queue[tuple[_Worker, Message]] = queue.Queue()
    base = {
        **os.environ,
        **environment(settings.threads),
        "DPPLAN_CALIBRATE": settings.text(),
        "DPPLAN_CALIBRATE_READY": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
    }
    base.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for rank in range(processes):
        process = subprocess.Popen(
            [sys.executable, "-m", "planner.calibrate"],
            env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        workers.append(_Worker(rank, process))
        for reader, arguments in ((_read, (workers[-1], messages)), (_read_errors, (workers[-1],))):
            threading.Thread(target=reader, args=arguments, daemon=True).start()
        if hook:
            hook(rank, process.pid)
    try:
        return _watch(workers, messages, settings, told)
    finally:
        _stop(workers)


def _watch(
    workers: list[_Worker],
    messages: queue.Queue[tuple[_Worker, Message]],
    settings: Settings,
    told: Callable[[Message], None],
) -> Message:
    result: Message | None = None
    errors: list[tuple[_Worker, Message]] = []
    first: tuple[_Worker, float] | None = None
    while True:
        with contextlib.suppress(queue.Empty):
            while True:
                worker, message = messages.get(timeout=_POLL_S)
                worker.seen = time.monotonic()
                worker.doing = str(message.get("case") or message.get("stage") or worker.doing)
                if "error" in message:
                    errors.append((worker, message))
                elif "result" in message:
                    result = message["result"]
                elif worker.rank == 0:
                    told(message)
        codes = [worker.process.poll() for worker in workers]
        if all(code == 0 for code in codes):
            if result is None:
                raise Failed("the workers ended without a result")
            return result
        for worker, code in zip(workers, codes, strict=True):
            if code not in (None, 0) and first is None:
                first = (worker, time.monotonic())
        wrong = next((m for _, m in errors if "field" in m), None)
        if wrong:
            raise PlanError(wrong["field"], wrong["value"], wrong["remedy"])
        if first and (
            all(code is not None for code in codes) or time.monotonic() - first[1] > _GRACE_S
        ):
            raise Failed(_why(workers, errors, first[0], settings))
        for worker in workers:
            if worker.process.poll() is None and time.monotonic() - worker.seen > _patience(
                settings
            ):
                slow = min((w for w in workers if w.process.poll() is None), key=lambda w: w.seen)
                raise Failed(
                    f"rank {slow.rank} hangs: no sign of life for"
                    f" {time.monotonic() - slow.seen:.0f} s while measuring {slow.doing};"
                    f" {_kept(settings)}"
                )


def _patience(settings: Settings) -> float:
    """A worker says something at every case; the longest is a visit, or a decoder that trains."""
    return settings.timeout_s + 240.0


def _kept(settings: Settings) -> str:
    return (
        f"what was measured until now is kept in {settings.records}, run the same command to go on"
    )


def _why(
    workers: list[_Worker],
    errors: list[tuple[_Worker, Message]],
    first: _Worker,
    settings: Settings,
) -> str:
    """The rank that went first without naming another one is the cause."""
    silent = [
        w
        for w in workers
        if w.process.poll() not in (None, 0) and not any(w is e for e, _ in errors)
    ]
    cause = silent[0] if silent else first
    code = cause.process.poll()
    if not silent and errors:
        return str(errors[0][1]["error"])
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return (
            f"rank {cause.rank} was ended by {name}{hint} while measuring {cause.doing};"
            f" {_kept(settings)}"
        )
    last = (cause.errors.strip().splitlines() or ["no message"])[-1]
    return (
        f"rank {cause.rank} ended with status {code} while measuring {cause.doing}: {last};"
        f" {_kept(settings)}"
    )


def _stop(workers: list[_Worker]) -> None:
    """End the workers that are left: each is the head of its own session."""
    for worker in workers:
        if worker.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                worker.process.kill()
    for worker in workers:
        worker.process.wait()
        for pipe in (worker.process.stdout, worker.process.stderr):
            if pipe and worker.process.poll() is not None and not pipe.closed:
                with contextlib.suppress(OSError, ValueError):
                    pipe.close()
