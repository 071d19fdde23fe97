"""A file in pieces of whole lines: how much of it is read is limited, whatever it holds."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from planner.inputs import catalog
from planner.specs.base import PlanError

MOST_BYTES = 256_000_000  # of a file: under 10 s of one core
MOST_READ = 400_000  # lines of steps: more say nothing more of the middle of them
MOST_LINE = 20_000  # bytes of a line that a reader looks at
_PIECE = 4_000_000
_GZIP = b"\x1f\x8b"


class Pieces:
    """A file that is being read. partly: the part that was read, in words, where not all was."""

    def __init__(self, file: BinaryIO, path: Path, field: str) -> None:
        self._file, self._path, self._field = file, path, field
        self._first = b""
        self.partly = ""

    def head(self) -> bytes:
        """The beginning of the file, which is read again by what follows."""
        if not self._first:
            self._first = self._read(_PIECE)
        return self._first

    def file(self) -> BinaryIO:
        """The file from its beginning, for what reads a few bytes at a time."""
        self._file.seek(0)
        return self._file

    def pieces(self) -> Iterator[bytes]:
        """Pieces of whole lines, a carriage return as the end of a line; a line that is longer
        than a piece is cut."""
        rest = b""
        for piece in self.raw():
            text = rest + piece.replace(b"\r", b"\n")
            end = text.rfind(b"\n")
            if end < 0 and len(text) < _PIECE:
                rest = text
                continue
            cut = len(text) if end < 0 else end
            rest = text[cut + 1 :]
            yield text[:cut]
        if rest:
            yield rest

    def raw(self) -> Iterator[bytes]:
        """The bytes as they are, as many as are read of a file."""
        piece, done = self.head(), 0
        while piece:
            yield piece
            done += len(piece)
            if done >= MOST_BYTES:
                if self._read(1):
                    self.partly = f"its first {MOST_BYTES // 1_000_000:,} MB"
                return
            piece = self._read(_PIECE)

    def _read(self, count: int) -> bytes:
        try:
            return self._file.read(count)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            reason = " ".join(str(error).split())
            raise PlanError(self._field, str(self._path), f"is broken gzip: {reason}") from None


@contextmanager
def pieces(path: Path, field: str) -> Iterator[Pieces]:
    """Open a file, packed by gzip or not."""
    with catalog.opened(path, field) as file:
        packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        if packed:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield Pieces(unpacked, path, field)  # type: ignore[arg-type]
        else:
            yield Pieces(file, path, field)
