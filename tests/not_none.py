"""Optional parts of an answer, required by a test."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def not_none(value: T | None) -> T:
    """The value; the test fails where there is none."""
    assert value is not None
    return value
