"""Commands that are ended at any moment, and workers of a server that are killed: files are whole
or as they were, nothing is left behind, one sentence says what happened, and the server goes on."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from command import ROOT
from hypothesis import given
from hypothesis import strategies as st

from fuzz import test_http as http
from fuzz.case import Took
from fuzz.short import few

DPPLAN = "import sys; from planner.cli import main; sys.argv[0] = 'dpplan'; main()"
OLD = "what was there"
_ONE = "--model gpt2 --gpu a100 --gpus 8"
COMMANDS = {
    "estimate": f"estimate {_ONE} --html page.html --json",
    "trace": f"estimate {_ONE} --trace page.html --plain",
    "search": f"search {_ONE} --html page.html --csv table.csv",
    "workers": f"compare {_ONE} --sweep gpus=8..64 --vary zero=0,1 --jobs 2 --csv table.csv",
    "batch": f"batch {_ONE} --sweep gpus=8,16 --jobs 1 --html page.html",
    "schedule": "schedule --schedule 1f1b --pp 4 --microbatches 8 --html page.html",
    "list": "list models",
    "serve": "serve --port {port}",
    "verify": "calibrate --verify --quick --out node.toml --threads 1",
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
_ANSWERED = {0, 2, 3, 4}
_END_S = 60.0  # after a signal, on a machine that is busy
_WORKER = "a worker of the server"
_SECONDS = re.compile(rb" evaluated in [^,]+,")  # of a search, which no two have alike


@dataclass(frozen=True)
class Case:
    """A command to end: signal, delay, whether all of its processes get the signal (as with
    Ctrl-C), and whether its result files exist before."""

    command: str
    number: int
    after_s: float
    group: bool
    there: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> Case:
        return cls(**values)


def _cases(commands: tuple[str, ...]) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        st.sampled_from(commands),
        st.sampled_from(SIGNALS).map(int),
        st.floats(0, 3) | st.floats(0, 0.3),
        st.booleans(),
        st.booleans(),
    )


CASES, CASE, TOOK = _cases((*COMMANDS, _WORKER, _WORKER)), Case, Took()


def fuzz(case: Case) -> None:
    if case.command == _WORKER:
        worker_ended(case)
    else:
        command_ended(case)


def words_of(name: str) -> list[str]:
    from browser import free_port

    line = COMMANDS[name].replace("{port}", str(free_port()) if "{port}" in COMMANDS[name] else "")
    return line.split()


def started(words: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """A command in a process of its own, from the moment when it catches signals: before, Python
    itself says what ended it."""
    process = subprocess.Popen(
        [sys.executable, "-c", DPPLAN, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    while process.poll() is None and not catches(process.pid, signal.SIGTERM):
        time.sleep(0.001)
    return process


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal (proc(5))."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        caught = next(line for line in lines if line.startswith("SigCgt"))
        return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
    return False


@cache
def results(name: str) -> dict[str, bytes]:
    """Output of a command that runs to its end."""
    if name in ("serve", "verify"):
        return {}
    with tempfile.TemporaryDirectory(prefix="fuzz") as place:
        folder = Path(place)
        done = started(words_of(name), folder)
        done.communicate()
        assert done.returncode in _ANSWERED
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def command_ended(case: Case) -> None:
    whole = results(case.command)
    with tempfile.TemporaryDirectory(prefix="fuzz") as place:
        folder = Path(place)
        for name in whole if case.there else ():
            (folder / name).write_text(OLD)
        process = started(words_of(case.command), folder)
        time.sleep(case.after_s)
        began = time.monotonic()
        with suppress(ProcessLookupError):
            (os.killpg if case.group else os.kill)(process.pid, case.number)
        try:
            out, err = process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise AssertionError(f"does not end within {_END_S:.0f} s of the signal") from None
        TOOK.add(f"ended by {signal.Signals(case.number).name}", time.monotonic() - began)
        _ended(case, process.returncode, out, err.decode())
        _left(case, folder, whole)
    _no_process(process.pid)


def _ended(case: Case, status: int, out: bytes, err: str) -> None:
    assert "Traceback" not in err, err[-800:]
    if status in _ANSWERED:  # before the signal came
        return
    if status < 0:  # by the signal itself, where none of ours ran yet to catch it
        assert -status == case.number, f"status {status}"
        assert not err.strip() or case.number == signal.SIGKILL, err[-300:]
        return
    assert status == 128 + case.number, f"status {status}: {err[-300:]}"
    kept = [line for line in err.splitlines() if "ended by" in line or "interrupted" in line]
    assert len(kept) == 1, err[-500:]


def _left(case: Case, folder: Path, whole: dict[str, bytes]) -> None:
    for path in folder.iterdir():
        if path.name in whole:
            seen, wanted = (_SECONDS.sub(b"", x) for x in (path.read_bytes(), whole[path.name]))
            assert seen == wanted or (case.there and seen == OLD.encode()), (
                f"{path.name} is neither whole nor as it was: {len(seen)} bytes"
            )
        elif case.command != "verify":
            assert case.number == signal.SIGKILL, f"leaves {path.name}"
    if case.there:
        assert all((folder / name).exists() for name in whole)


def _no_process(group: int) -> None:
    """Nothing of a command goes on: workers see that it has gone."""
    until = time.monotonic() + _END_S
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    os.killpg(group, signal.SIGKILL)
    raise AssertionError("processes of the command go on")


_ASKED = (
    b"GET /api/search?model=gpt2&gpu=h100&gpus=%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /api/estimate?model=gpt2&gpu=a100&gpus=%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
)


def worker_ended(case: Case) -> None:
    """One process of the server ends during two requests; both and the next are answered."""
    chance = random.Random(f"{case.after_s} {case.number}")
    received: list[bytes] = []

    def send(line: bytes) -> None:
        line %= 8 * chance.randrange(1, 9)
        received.append(http.exchanged(http.Case((line,), answered=True)))

    threads = [threading.Thread(target=send, args=(line,)) for line in _ASKED]
    for thread in threads:
        thread.start()
    time.sleep(case.after_s / 10)
    servers = list(http.children(os.getpid()))
    workers = [pid for server in servers[:1] for pid in http.children(server)]
    if workers:
        with suppress(ProcessLookupError):
            os.kill(chance.choice(workers), case.number)
    for thread in threads:
        thread.join()
    for answer in received:
        for status, headers, body in http.answers(answer):
            TOOK.add(f"answered {status} as a worker ends")
            http.checked(status, headers, body)
            if status != 200 and http.TOO_LONG not in body:
                assert status == 503, body[:300]
                assert headers.get("retry-after")
    assert len(received) == len(threads)
    http.alive()


@contextmanager
def ready() -> Iterator[None]:
    with http.ready():
        yield


@pytest.fixture(scope="module")
def server() -> Iterator[None]:
    with ready():
        yield


@few(2)
@given(case=_cases(("search", "workers")))
def test_a_command_that_is_ended_leaves_whole_files(case: Case) -> None:
    fuzz(case)


@few(3)
@given(case=_cases((_WORKER,)))
def test_a_server_whose_workers_are_killed_answers(server: None, case: Case) -> None:
    fuzz(case)
