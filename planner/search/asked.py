"""What a search was asked, by all that is in it: equal questions of one process are searched once.

Text and document of a command, the page, its late parts and its tabs ask the same ones."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
KEPT = 8  # questions whose answers are kept


@dataclass(frozen=True)
class Asked(Generic[T]):
    """A question as the key of its answer."""

    digest: bytes
    question: T = field(compare=False)


def asked(question: T) -> Asked[T]:
    """Plans differ where any part does: sources of numbers, too, which equal numbers may differ
    in."""
    return Asked(hashlib.sha256(pickle.dumps(question)).digest(), question)
