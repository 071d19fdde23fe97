"""JSON that people write: a key that occurs twice is an error, not the last one's value."""

from __future__ import annotations

import json
from typing import Any


def read_json(text: str | bytes) -> Any:
    """What a JSON text holds. Raises ValueError for malformed text and for a key given twice."""
    return json.loads(text, object_pairs_hook=unique)


def unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Keys and values as a dict. Raises ValueError naming a key that is given twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(k for k in keys if keys.count(k) > 1)!r} is given twice; keep one")
    return found
