"""The objects of a list in a JSON document, one after another: the document is never in memory."""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from planner.specs.base import PlanError
from planner.studies.logs.stream import Pieces

_MOST_OBJECT = 4_000_000  # characters of one object, and of what stands before the list
_MOST_VALUES = (
    4_000_000  # of a list: of the shortest events a gigabyte would hold ten times as many
)
_DECODER = json.JSONDecoder()
_BETWEEN = re.compile(r"[\s,]*")
_UTF8 = getincrementaldecoder("utf-8-sig")


def objects(
    source: Pieces, path: Path, field: str, format_name: str, begins: re.Pattern[str]
) -> Iterator[dict[str, Any]]:
    """The objects of a list. Raises PlanError with line and column where it stops being JSON.

    what: the kind of document, in words; begins: what stands before the first object.
    """
    at = [0, 0]  # lines before the piece that is read, and characters of its last line
    try:
        yield from _streamed(source, at, begins)
    except _BrokenList as error:
        where = f"line {at[0] + 1}, column {at[1] + 1}"
        raise PlanError(
            field, str(path), f"is not valid {format_name}: {error} ({where})"
        ) from None


class _BrokenList(ValueError):
    """Position at which a list stops being JSON."""


def _streamed(source: Pieces, at: list[int], begins: re.Pattern[str]) -> Iterator[dict[str, Any]]:
    text, inside, left = "", False, [_MOST_VALUES]
    decoder = _UTF8("replace")
    for piece in source.raw():
        text += decoder.decode(piece)
        if not inside:
            start = begins.search(text)
            if start is None and len(text) > _MOST_OBJECT:
                raise _BrokenList("its list does not begin")
            if start is None:
                continue
            text, inside = _cut(text, start.end(), at), True
        place = yield from _whole_ones(text, at, left)
        if place < 0:
            return
        text = _cut(text, place, at)
        if left[0] <= 0:
            source.partly = f"its first {_MOST_VALUES:,} entries"
            return
    if source.partly:
        return
    why = "it ends in the middle"
    try:
        _DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        if text[error.pos :].strip():  # something stands there, and is wrong
            why = f"{error.msg[:1].lower()}{error.msg[1:]}"
            _cut(text, error.pos, at)
    raise _BrokenList(why)


def _whole_ones(text: str, at: list[int], left: list[int]) -> Generator[dict[str, Any], None, int]:
    """The objects that a text holds whole; comes to the place where the first one begins that it
    does not, or to -1 where the list ends. left: how many more values are read."""
    place = 0
    while left[0] > 0:
        between = _BETWEEN.match(text, place)
        place = between.end() if between else place
        if place >= len(text) or text[place] == "]":
            return -1 if text[place : place + 1] == "]" else place
        try:
            value, end = _DECODER.raw_decode(text, place)
        except json.JSONDecodeError as error:
            if len(text) - place <= _MOST_OBJECT:
                return place
            _cut(text, error.pos, at)
            raise _BrokenList(f"{error.msg[:1].lower()}{error.msg[1:]}") from None
        except RecursionError:
            _cut(text, place, at)
            raise _BrokenList("it is nested too deep") from None
        except ValueError:  # Python reads no more digits than these
            _cut(text, place, at)
            raise _BrokenList("a whole number has more than 4,300 digits") from None
        place = end
        left[0] -= 1
        if isinstance(value, dict):
            yield value
    return place


def _cut(text: str, place: int, at: list[int]) -> str:
    """The text from a place on; at: how far that is into the file."""
    lines = text.count("\n", 0, place)
    at[1] = place - text.rfind("\n", 0, place) - 1 if lines else at[1] + place
    at[0] += lines
    return text[place:]
