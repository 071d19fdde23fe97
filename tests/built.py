"""The documentation as it was built: all of it is made again where what it is made of has changed
since, and by DOCS_TESTS=1; else a part that differs from tree to tree."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
_PART = 8  # one in this many is made again
T = TypeVar("T")

_SPEC = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
assert _SPEC is not None
assert _SPEC.loader is not None
build = importlib.util.module_from_spec(_SPEC)
sys.modules["docs_build"] = build
_SPEC.loader.exec_module(build)


@cache
def _seed() -> str:
    """The digest where nothing has changed since; empty where all is made again."""
    if os.environ.get("DOCS_TESTS") or not build.unchanged():
        return ""
    digest: str = build.digest()
    return digest


def _number(item: object) -> int:
    return int(hashlib.sha256(f"{_seed()}{item}".encode()).hexdigest()[:8], 16)


def all_again() -> bool:
    """Whether the tests make all of it again."""
    return not _seed()


def again(items: Iterable[T], slow: Iterable[T] = ()) -> list[T]:
    """Sample of these that the tests build again, at least one. slow: those that take minutes."""
    every = list(items)
    if all_again():
        return every
    left = [item for item in every if item not in set(slow)]
    return [item for item in left if _number(item) % _PART == 0] or [min(left, key=_number)]
