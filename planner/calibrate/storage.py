"""Time a file that is written to a folder and read from it: what a checkpoint there takes.

One rank of every node writes at the same time, as a sharded checkpoint does: a shared file system
shows what it gives each node.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from planner.calibrate import cases
from planner.calibrate.measure import Task, Timed
from planner.error import PlanError

_FILE_BYTES: dict[cases.Mode, int] = {
    "quick": 16 * cases.MIB,
    "default": 128 * cases.MIB,
    "thorough": 1024 * cases.MIB,
}
_PIECE_BYTES = 4 * cases.MIB  # one call of write or read
_SPARE = 4  # a folder is measured only where free space is this many times the file


def tasks(folder: Path, mode: cases.Mode, first_of_node: bool) -> Iterator[Task]:
    """Write with fsync, and read without the page cache of this host; seconds per byte."""
    size = _FILE_BYTES[mode]
    for way in ("write", "read"):
        yield (
            {"kind": "storage", "way": way, "bytes": size},
            partial(_timed, folder, way, size, first_of_node),
        )


def _timed(folder: Path, way: str, size: int, first_of_node: bool) -> Timed:
    """Other ranks of a node wait: they return nothing that counts."""
    if not first_of_node:
        return lambda: 0.0
    free = shutil.disk_usage(folder).free
    if free < _SPARE * size:
        raise _refused(
            folder, f"has {free / 1e6:,.0f} MB free, measuring wants {_SPARE * size / 1e6:,.0f} MB"
        )
    piece = os.urandom(_PIECE_BYTES)  # storage that compresses gains nothing

    def timed() -> float:
        try:
            with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
                written = _write(file, piece, size)
                return (written if way == "write" else _read(file)) / size
        except OSError as error:
            raise _refused(folder, f"cannot be written: {error.strerror or error}") from None

    return timed


def _write(file: BinaryIO, piece: bytes, size: int) -> float:
    start = time.perf_counter()
    for _ in range(size // len(piece)):
        if file.write(piece) != len(piece):
            raise OSError(28, os.strerror(28))
    os.fsync(file.fileno())
    return time.perf_counter() - start


def _read(file: BinaryIO) -> float:
    if hasattr(os, "posix_fadvise"):  # the pages just written are in memory
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    piece = bytearray(_PIECE_BYTES)
    file.seek(0)
    start = time.perf_counter()
    while file.readinto(piece):  # type: ignore[attr-defined]
        pass
    return time.perf_counter() - start


def _refused(folder: Path, why: str) -> PlanError:
    return PlanError(
        "--storage",
        str(folder),
        f"{why}; what was measured until now is kept, free space or give another folder",
    )
