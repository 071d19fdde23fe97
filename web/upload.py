"""A form with files as browsers post it: multipart/form-data, RFC 7578."""

from __future__ import annotations

import re
from dataclasses import dataclass

from planner.specs.base import PlanError
from web import limits
from web.state import Malformed, Pairs

KIND = "multipart/form-data"
FILES = "files"  # of the form's fields, the one for files
TEXT = "text"  # that for a pasted text
_PASTED = "pasted"  # what such a one is called
_BOUNDARY = re.compile(r'boundary="?([^";,\s]{1,70})"?', re.IGNORECASE)
_NAME = re.compile(r'\bname="([^"]*)"')
_FILE = re.compile(r'\bfilename="([^"]*)"')
_HEAD = 8_192  # bytes of the headers of a part
_NO_NAME = re.compile(r"[\x00-\x1f\x7f/\\]")
_MOST_NAME = 120  # characters of the name of a file
# what a pasted text looks like, and how a file of that kind is named: formats go by it
_LOOKS = (
    (re.compile(rb"\A\s*+[{\[]\s*+[\"}\]{]"), ".json"),
    (re.compile(rb"(?m)^\[\[?[\w.]++\]?\][ \t]*+\r?$"), ".toml"),
    (re.compile(rb"\A(?:(?:[ \t]*+(?:#[^\n]*+)?+|---[ \t]*+)\r?\n)*+[\w.\"-]++:(?:\s|$)"), ".yaml"),
)
_LOOKED_AT = 100_000  # bytes of it


@dataclass(frozen=True)
class Posted:
    """Fields in their order, and files by name."""

    pairs: Pairs
    files: dict[str, bytes]


def posted(body: bytes, kind: str) -> Posted:
    """Fields and files of a posted form. Raises Malformed for another body, and PlanError for too
    many files."""
    boundary = _BOUNDARY.search(kind)
    if boundary is None:
        raise Malformed("request", None, "is a form without a boundary")
    mark = b"\r\n--" + boundary[1].encode("latin-1", "replace")
    parts = (b"\r\n" + body).split(mark, limits.MOST_PAIRS + limits.MOST_FILES + 2)
    if not parts[1:] or not parts[-1].startswith(b"--"):
        raise Malformed("request", None, "is a form that does not end as its boundary says")
    pairs: Pairs = []
    files: dict[str, bytes] = {}
    for part in parts[1:-1]:
        name, file, content = _part(part)
        if file is None and name not in (FILES, TEXT):
            pairs.append((name, _text(name, content)))
        elif content.strip():  # a field without a file sends an empty one
            files[_called(file or f"{_PASTED}{_ending(content)}", files)] = content
    if len(files) > limits.MOST_FILES:
        raise PlanError("files", len(files), f"at most {limits.MOST_FILES} are read at once")
    return Posted(pairs, files)


def _part(part: bytes) -> tuple[str, str | None, bytes]:
    """Name of the field, name of its file, and what it holds."""
    head, _, content = part.partition(b"\r\n\r\n")
    headers = head[:_HEAD].decode("utf-8", "replace")
    name, file = _NAME.search(headers), _FILE.search(headers)
    if name is None:
        raise Malformed("request", None, "has a part without a name")
    return name[1], None if file is None else file[1], content


def _text(name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed(name[:50], None, "is not UTF-8 text") from None


def _ending(content: bytes) -> str:
    """How a file with such a text would be named."""
    return next((end for looks, end in _LOOKS if looks.search(content[:_LOOKED_AT])), ".txt")


def _called(name: str, taken: dict[str, bytes]) -> str:
    """The name of a file without folders and control characters, each once."""
    plain = _NO_NAME.sub(" ", re.split(r"[/\\]", name)[-1]).strip()[:_MOST_NAME] or _PASTED
    unique, count = plain, 1
    while unique in taken:
        count += 1
        unique = f"{plain} ({count})"
    return unique
