"""Plain data out of a pickle, without running anything that it names.

A pickle is a program. This machine knows only the instructions that build numbers, texts, lists,
tuples and dictionaries; it has none that imports a name or calls one, so that a file with such an
instruction is refused where it stands.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from planner.specs.base import PlanError

MOST_BYTES = 160_000_000  # of a file: about 20 s
MOST_BUILT = 400_000_000  # bytes of Python's values, counted as they are built
_MOST_TEXT = 1_000_000  # bytes of one text
_MOST_INTEGER = 16  # bytes of one whole number
VERSIONS = (2, 3, 4, 5)  # of the protocol: 1 and 0 are text
_MARK = object()
Kept = Callable[[dict[Any, Any]], None]


class Refused(ValueError):
    """Why a pickle is not read."""


def read_pickle(file: BinaryIO, path: Path, field: str, kept: Kept) -> Any:
    """What a pickle holds. Raises PlanError for one that is broken, too large, or no plain data.

    kept: is shown every dictionary as it gets new keys, and drops of it what nobody needs.
    """
    machine = Machine(file, kept)
    try:
        return machine.run()
    except Refused as error:
        remedy = f"{error} (byte {machine.at:,})"
        raise PlanError(field, str(path), remedy) from None
    except (IndexError, TypeError, KeyError, ValueError, struct.error):
        remedy = f"is a broken pickle (byte {machine.at:,})"
        raise PlanError(field, str(path), remedy) from None


class Machine:
    """The stack, the marks in it, and the memory of values that are used again."""

    def __init__(self, file: BinaryIO, kept: Kept) -> None:
        self._file, self._kept = file, kept
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._built = 0
        self.at = 0

    def run(self) -> Any:
        """The value that the pickle ends with."""
        known, read = self._known(), self._read
        while True:
            code = read(1)
            if code == b".":
                return self._stack.pop()
            step = known.get(code)
            if step is None:
                said = _CALLS.get(code)
                if said:
                    raise Refused(f"holds code to run ({said}), which no memory snapshot does")
                raise Refused("is no pickle of plain data, as torch's memory snapshots are")
            step()
            self._built += _SIZES.get(code, _VALUE)
            if self._built > MOST_BUILT:
                raise Refused(
                    f"holds values of more than {MOST_BUILT:,} bytes; record less with"
                    " _record_memory_history(max_entries=100_000)"
                )

    def _read(self, count: int) -> bytes:
        found = self._file.read(count)
        self.at += count
        if len(found) < count:
            raise Refused("ends in the middle")
        if self.at > MOST_BYTES:
            raise Refused(f"is larger than the {MOST_BYTES:,} bytes that are read of a snapshot")
        return found

    def _known(self) -> dict[bytes, Callable[[], None]]:
        push, whole = self._stack.append, int.from_bytes
        read = self._read

        def text(width: int) -> Callable[[], None]:
            return lambda: push(self._text(whole(read(width), "little")))

        def number(width: int, signed: bool) -> Callable[[], None]:
            return lambda: push(whole(read(width), "little", signed=signed))

        return {
            b"\x80": lambda: self._version(read(1)[0]),
            b"\x95": lambda: self._skip(read(8)),
            b"N": lambda: push(None),
            b"\x88": lambda: push(True),
            b"\x89": lambda: push(False),
            b"J": number(4, True),
            b"K": number(1, False),
            b"M": number(2, False),
            b"\x8a": lambda: push(self._integer(read(1)[0])),
            b"G": lambda: push(struct.unpack(">d", read(8))[0]),
            b"X": text(4),
            b"\x8c": text(1),
            b"\x8d": text(8),
            b"(": lambda: push(_MARK),
            b"]": lambda: push([]),
            b"}": lambda: push({}),
            b")": lambda: push(()),
            b"a": self._append,
            b"e": self._appends,
            b"s": self._item,
            b"u": self._items,
            b"t": lambda: push(tuple(self._marked())),
            b"\x85": lambda: self._tuple(1),
            b"\x86": lambda: self._tuple(2),
            b"\x87": lambda: self._tuple(3),
            b"\x94": lambda: self._keep(len(self._memo)),
            b"q": lambda: self._keep(read(1)[0]),
            b"r": lambda: self._keep(whole(read(4), "little")),
            b"h": lambda: push(self._memo[read(1)[0]]),
            b"j": lambda: push(self._memo[whole(read(4), "little")]),
        }

    def _version(self, number: int) -> None:
        if number not in VERSIONS:
            raise Refused(f"is a pickle of version {number}; 2 to 5 are read")

    def _skip(self, length: bytes) -> None:
        """A frame says how far it reaches, which no reader needs."""

    def _integer(self, width: int) -> int:
        if width > _MOST_INTEGER:
            raise Refused("holds a whole number that is no size")
        return int.from_bytes(self._read(width), "little", signed=True)

    def _text(self, length: int) -> str:
        if length > _MOST_TEXT:
            raise Refused(f"holds a text of more than {_MOST_TEXT:,} bytes")
        self._built += length
        return self._read(length).decode("utf-8", "replace")

    def _marked(self) -> list[Any]:
        """What lies above the last mark."""
        stack = self._stack
        at = len(stack) - 1
        while stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise Refused("is a broken pickle")
        found = stack[at + 1 :]
        del stack[at:]
        return found

    def _append(self) -> None:
        value = self._stack.pop()
        self._list().append(value)

    def _appends(self) -> None:
        values = self._marked()
        self._list().extend(values)

    def _list(self) -> list[Any]:
        if not isinstance(self._stack[-1], list):
            raise Refused("is a broken pickle")
        found: list[Any] = self._stack[-1]
        return found

    def _item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._dict([key], [value])

    def _items(self) -> None:
        found = self._marked()
        self._dict(found[::2], found[1::2])

    def _dict(self, keys: list[Any], values: list[Any]) -> None:
        """Keys are names and numbers: of tuples in tuples the hash would overflow the stack."""
        held = self._stack[-1]
        if not isinstance(held, dict) or not all(isinstance(one, str | int) for one in keys):
            raise Refused("is a broken pickle")
        held.update(zip(keys, values, strict=True))
        self._kept(held)

    def _tuple(self, count: int) -> None:
        found = tuple(self._stack[-count:])
        del self._stack[-count:]
        self._stack.append(found)

    def _keep(self, at: int) -> None:
        self._memo[at] = self._stack[-1]


# bytes of what an instruction builds (CPython 3.11), above what most build: a number in a list or
# a dictionary, with its share of the table
_VALUE = 44
_SIZES = {
    b"\x85": 72,
    b"\x86": 80,
    b"\x87": 88,
    b"}": 240,
    b"]": 64,
    b"\x94": 100,
    b"q": 100,
    b"r": 100,
    b"X": 60,
    b"\x8c": 60,
}
# that build nothing
_SIZES |= dict.fromkeys((b"(", b"u", b"e", b"s", b"a", b"h", b"j", b"K", b"N", b"\x95"), 16)
# instructions that import, call or build something
_CALLS = {
    b"c": "GLOBAL",
    b"\x93": "STACK_GLOBAL",
    b"R": "REDUCE",
    b"i": "INST",
    b"o": "OBJ",
    b"\x81": "NEWOBJ",
    b"\x92": "NEWOBJ_EX",
    b"b": "BUILD",
    b"\x82": "EXT1",
    b"\x83": "EXT2",
    b"\x84": "EXT4",
    b"P": "PERSID",
    b"Q": "BINPERSID",
}
