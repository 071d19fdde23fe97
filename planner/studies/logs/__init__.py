"""Logs of training programs: what each step took, what memory was held, and what went wrong.

One file per program knows the lines that it prints; `read_log` finds out which of them wrote a
file. A log is streamed, and no more of it is read than `stream.MOST_BYTES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from planner.specs.base import PlanError
from planner.studies.logs import stream
from planner.studies.logs.contents import Log, Reader
from planner.studies.logs.huggingface import trainer_state
from planner.studies.logs.programs import TABLES, readers

__all__ = ["Log", "SaysNothing", "read_log", "says_anything"]


class SaysNothing(PlanError):
    """A file without a line of a known log."""


def says_anything(head: bytes) -> bool:
    """Whether a file that begins so is a log: of some program, a table of curves, the state of a
    trainer, or a message that memory ran out."""
    if _is_state(head) or any(table.is_one(head) for table in TABLES):
        return True
    all_readers = readers()
    _lines([head.replace(b"\r", b"\n")], all_readers)
    for reader in all_readers:
        reader.finish()
    return any(reader.log.steps or reader.log.shortages for reader in all_readers)


def _is_state(head: bytes) -> bool:
    return head.lstrip().startswith(b"{") and b'"log_history"' in head


def read_log(path: Path, field: str) -> Log:
    """The steps, memory and events of a log. Raises PlanError for an unknown kind of file."""
    with stream.pieces(path, field) as source:
        head = source.head()
        if _is_state(head):
            return trainer_state(source, path, field)
        for table in TABLES:
            if table.is_one(head):
                return table.read(source, path, field)
        all_readers = readers()
        if _lines(source.pieces(), all_readers):
            source.partly = source.partly or f"its first {stream.MOST_READ:,} lines of steps"
    for reader in all_readers:
        reader.finish()
    logs = [reader.log for reader in all_readers if reader.log.steps]
    shortages = [shortage for reader in all_readers for shortage in reader.log.shortages]
    memories = [reader.log for reader in all_readers if reader.log.memory]
    if not logs and not shortages:
        known = ", ".join(reader.TITLE for reader in all_readers if reader.TITLE)
        remedy = (
            f"holds no step of a log that is known ({known}, trainer_state.json, CSV of Weights &"
            " Biases or TensorBoard), no torch profiler trace, memory snapshot or message that"
            " memory ran out"
        )
        raise SaysNothing(field, str(path), remedy)
    # running means of a progress bar count only where no program printed steps of its own
    log = max(
        logs or memories or [Log()], key=lambda reader: (not reader.smoothed, len(reader.steps))
    )
    log.shortages, log.partly = shortages, source.partly
    return log


def _lines(pieces: Iterable[bytes], all_readers: list[Reader]) -> bool:
    """Give every line to the readers that print such a one; whether there are more of them than
    are read."""
    marks = [(mark, reader) for reader in all_readers for mark in reader.MARKS]
    seen = 0
    for piece in pieces:
        for start, readers_ in sorted(_marked(piece, marks).items()):
            end = piece.find(b"\n", start)
            line = piece[start : end if end >= 0 else None][: stream.MOST_LINE]
            for reader in readers_:
                reader.line(line.decode("utf-8", "replace"))
            seen += 1
        if seen > stream.MOST_READ:
            return True
    return False


def _marked(piece: bytes, marks: Sequence[tuple[bytes, Reader]]) -> dict[int, list[Reader]]:
    """Where the lines begin that somebody reads, and who: nothing else of a piece is looked at."""
    marked: dict[int, list[Reader]] = {}
    for mark, reader in marks:
        at = piece.find(mark)
        while at >= 0:
            start = piece.rfind(b"\n", 0, at) + 1
            mine = marked.setdefault(start, [])
            if reader not in mine:
                mine.append(reader)
            end = piece.find(b"\n", at)
            at = piece.find(mark, end) if end >= 0 else -1
    return marked
