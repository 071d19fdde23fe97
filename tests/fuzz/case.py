"""A case: the words of a command and the files beside it, asked in this process and measured."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shlex
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

from command import Answer, dpplan

from planner.cli import finish, made

MOST_CPU_S = 20.0  # what one request may take on two cores
MOST_BYTES = 2 * 10**9
_FACTOR_S = 3  # times as long, and the case is stopped


@dataclass(frozen=True)
class Case:
    """Words of a command, and the files of its folder."""

    words: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict)
    columns: int = 100

    def __repr__(self) -> str:
        beside = {name: content[:200] for name, content in self.files.items()}
        return f"dpplan {shlex.join(self.words)[:2000]}  # beside {beside}"

    def to_json(self) -> dict[str, Any]:
        files = {name: base64.b64encode(text).decode() for name, text in self.files.items()}
        return {"words": list(self.words), "files": files, "columns": self.columns}

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> Case:
        files = {name: base64.b64decode(text) for name, text in values["files"].items()}
        return cls(tuple(values["words"]), files, values["columns"])


@dataclass(frozen=True)
class Outcome:
    """Outcome of a case: the answer, its document where one was printed, what it took, what it
    warned of, and files in the folder that were not there before or are not as before."""

    answer: Answer
    documents: list[Any]
    cpu_s: float
    seconds: float
    peak_bytes: int
    warned: list[str]
    written: dict[str, bytes]


@dataclass
class Took:
    """The most that cases took, and how many came to what."""

    seconds: float = 0.0
    bytes: int = 0
    more: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, seconds: float = 0.0, peak_bytes: int = 0) -> None:
        self.seconds, self.bytes = max(self.seconds, seconds), max(self.bytes, peak_bytes)
        self.more[name] = self.more.get(name, 0) + 1


class Endless(Exception):
    """A case that was stopped."""


def ask(case: Case, took: Took) -> Outcome:
    """Run the command of a case in a folder of its own, in this process."""
    documents: list[Any] = []

    def kept(*given: Any) -> None:
        documents.extend(entry.document for entry in given if isinstance(entry, finish.Answer))
        finish.finish(*given)

    with tempfile.TemporaryDirectory(prefix="fuzz") as name, contextlib.chdir(name):
        for file, content in case.files.items():
            Path(file).write_bytes(content)
        before = _rewound()
        began, cpu = time.monotonic(), time.process_time()
        with (
            warnings.catch_warnings(record=True) as warned,
            patch.object(made, "finish", kept),
            _stopped(MOST_CPU_S * _FACTOR_S),
        ):
            warnings.simplefilter("always")
            answer = dpplan(*case.words, columns=case.columns)
        cpu_s, seconds = time.process_time() - cpu, time.monotonic() - began
        values = {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    took.add(f"status {answer.status}", cpu_s, peak := _peak() - before)
    return Outcome(
        answer,
        documents,
        cpu_s,
        seconds,
        peak,
        [f"{entry.category.__name__}: {entry.message}" for entry in warned if _is_ours(entry)],
        {name: text for name, text in values.items() if case.files.get(name) != text},
    )


def _is_ours(warning_message: warnings.WarningMessage) -> bool:
    """Whether a warning comes of an answer, and not of a library's age."""
    return not issubclass(warning_message.category, DeprecationWarning | ResourceWarning)


@contextlib.contextmanager
def _stopped(cpu_s: float) -> Iterator[None]:
    """Stop what takes more of the processor."""

    def stop(_: int, __: FrameType | None) -> None:
        raise Endless(f"takes more than {cpu_s:.0f} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, cpu_s, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_REWIND = "5"  # resets the high-water mark of resident memory (proc(5))


def _rewound() -> int:
    """Bytes resident now; from here on `_peak` counts. 0 where the system does not say."""
    with contextlib.suppress(OSError):
        _CLEAR.write_text(_REWIND)
    return _peak()


def _peak() -> int:
    """Most bytes that were resident since."""
    if not os.access(_CLEAR, os.W_OK):
        return 0
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def saved(kind: str, case: Any, folder: Path, name: str) -> Path:
    """A failing case as a file that `python -m tests.fuzz --repeat FILE` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind}-{name}.json"
    path.write_text(json.dumps({"kind": kind, "case": case.to_json()}, indent=1))
    return path
