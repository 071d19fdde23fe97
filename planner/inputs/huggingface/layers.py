"""From kinds and parts to the fields of a ModelSpec: every layer in words, repeated ones as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.specs.shape import repeats

Part = dict[str, Any]
Blocks = list[list[Part]]


def stacked(layers: Sequence[Blocks]) -> dict[str, Any]:
    """Parts by name and the stack of layers made of them.

    A layer is a list of blocks, a block a list of parts that read the same input. Equal parts are
    merged; different parts of one type are numbered.
    """
    names: dict[str, str] = {}
    taken: dict[str, int] = {}
    parts: list[Part] = []

    def named(part: Part) -> str:
        body = {key: value for key, value in part.items() if value is not None}
        key = repr(sorted(body.items(), key=lambda item: item[0]))
        if key not in names:
            base = str(body.pop("name", body["type"]))
            taken[base] = taken.get(base, 0) + 1
            names[key] = base if taken[base] == 1 else f"{base}-{taken[base]}"
            parts.append({**body, "name": names[key]})
        return names[key]

    words = [" + ".join(" & ".join(map(named, block)) for block in layer) for layer in layers]
    return {"parts": parts, "stack": repeats(words)}
