"""Questions to a search as keys of their answers: a process searches equal ones once.

Text and document of a command, the page, its late parts and its tabs ask the same questions."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
KEPT = 8  # questions whose answers are kept


@dataclass(frozen=True)
class Question(Generic[T]):
    """Plans, equal where all their parts are, sources of numbers too."""

    digest: bytes
    plans: T = field(compare=False)


def question_of(plans: T) -> Question[T]:
    """The question, by the digest of its plans."""
    return Question(hashlib.sha256(pickle.dumps(plans)).digest(), plans)
