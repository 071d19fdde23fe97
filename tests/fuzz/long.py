"""Fuzzers for a given time, with statistics of their findings."""

from __future__ import annotations

import hashlib
import importlib
import resource
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from fuzz.case import Endless, saved

KINDS = ("requests", "documents", "logs", "http", "schema", "writers", "kills", "markup")
_ROUND = 200  # cases of one seed of hypothesis
_SHRINK_S = 60.0  # for making one fault small
_MOST_BYTES = 8 * 2**30  # address space: what asks for more fails here instead of the machine


@dataclass
class Figures:
    """Outcome of one kind of case. Worst: the slowest case in seconds, the largest in bytes."""

    kind: str
    cases: int = 0
    tracebacks: int = 0
    hangs: int = 0
    broken: int = 0  # promises, by cases that break one
    seconds: float = 0.0
    bytes: int = 0
    more: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)  # cases of each


def run_kind(kind: str, start: int, until: float, folder: Path) -> Figures:
    """Run a kind to the end of its time."""
    module = importlib.import_module(f"fuzz.test_{kind}")
    figures = Figures(kind)
    # of this process, and not of a browser or a server
    with getattr(module, "ready", nullcontext)(), _limited():
        number = start
        while time.monotonic() < until:
            _round(module, number, figures, until, folder)
            number += 1_000_003  # rounds of neighbouring seeds do not meet
    return figures


@contextmanager
def _limited() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _round(module: Any, number: int, figures: Figures, until: float, folder: Path) -> None:
    """So many cases of one seed; a fault that is new ends it, made small and written."""
    last: list[tuple[Any, Exception, str]] = []
    shrinks_until = 0.0

    @seed(number)
    @settings(
        max_examples=_ROUND,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(case=module.CASES)
    def attempt(case: Any) -> None:
        nonlocal shrinks_until
        if time.monotonic() > (until if not last else shrinks_until):
            return
        try:
            module.fuzz(case)
        except Exception as error:
            name = signature(error)
            if name in figures.faults and not (last and last[0][2] == name):
                figures.faults[name] += 1
                _count(figures, error)
                return
            if not last:
                _count(figures, error)
                shrinks_until = time.monotonic() + _SHRINK_S
            if not last or name == last[0][2]:
                last.append((case, error, name))
                raise
        finally:
            figures.cases += 1
            _measured(figures, module)

    try:
        attempt()
    except Exception:  # the fault, or that it does not come again
        if not last:
            raise
        case, fault, name = last[-1]
        figures.faults[name] = figures.faults.get(name, 0) + 1
        path = saved(figures.kind, case, folder, hashlib.sha256(name.encode()).hexdigest()[:10])
        text = "".join(traceback.format_exception(fault))[-3000:]
        path.with_suffix(".txt").write_text(
            f"{case!r}\n\n{text}", encoding="utf-8", errors="replace"
        )
        print(f"{figures.kind}: {name[:300]}\n  python -m tests.fuzz --repeat {path}", flush=True)


def _count(figures: Figures, error: Exception) -> None:
    if isinstance(error, Endless):
        figures.hangs += 1
    elif isinstance(error, AssertionError):
        figures.broken += 1
    else:
        figures.tracebacks += 1


def _measured(figures: Figures, module: Any) -> None:
    """Cost of the last case, if its kind reports it."""
    took = getattr(module, "TOOK", None)
    if took is not None:
        figures.seconds = max(figures.seconds, took.seconds)
        figures.bytes = max(figures.bytes, took.bytes)
        figures.more |= took.more


def signature(error: Exception) -> str:
    """Key of a fault: the type of the error and the innermost line in this repository."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/planner/" in frame.filename or "/web/" in frame.filename]
    where = (ours or frames)[-1]
    text = "" if ours else f": {_plain(str(error))}"
    return f"{type(error).__name__} at {Path(where.filename).name}:{where.name}{text}"


def _plain(text: str) -> str:
    """A message without what differs between cases: numbers and quotations."""
    line = text.split("\n")[0]
    return "".join("#" if entry.isdigit() else entry for entry in line)[:70]


def repeated(kind: str, values: dict[str, Any]) -> int:
    """Run a recorded case again and print its outcome."""
    module = importlib.import_module(f"fuzz.test_{kind}")
    case = module.CASE.of_json(values)
    print(repr(case))
    with getattr(module, "ready", nullcontext)():
        module.fuzz(case)
    print("holds")
    return 0


def table(every: Sequence[Figures]) -> str:
    """Figures as a table in markdown."""
    rows: list[Callable[[Figures], str]] = [
        lambda entry: entry.kind,
        lambda entry: f"{entry.cases:,}",
        lambda entry: str(entry.tracebacks),
        lambda entry: str(entry.hangs),
        lambda entry: str(entry.broken),
        lambda entry: f"{entry.seconds:.1f} s",
        lambda entry: f"{entry.bytes / 1e6:,.0f} MB",
        lambda entry: ", ".join(f"{n:,} {name}" for name, n in sorted(entry.more.items())),
    ]
    head = (
        "| Kind | Cases | Tracebacks | Hangs | Promises broken | Slowest | Most memory | Of which |"
    )
    lines = [head, "|---|---:|---:|---:|---:|---:|---:|---|"]
    return "\n".join(lines + [f"| {' | '.join(cell(entry) for cell in rows)} |" for entry in every])
