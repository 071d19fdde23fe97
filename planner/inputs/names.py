"""Names as people spell them, and suggestions for unknown names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from planner.specs.options.words import plain

_ALIKE = 0.5  # likeness (difflib) from which a name is worth offering
_SAME_FAMILY = 0.75  # likeness of the letters before the first number of two names of one family
_SAME_SIZE = 1.3  # sizes this many times apart count as the same
_PART_DIGITS = 3  # of a GPU's number that must be there
_SIZE = re.compile(r"(?<![a-z\d.])(\d{1,6}(?:\.\d{1,3})?)([bm])(?![a-z])")
_BILLION = {"b": 1.0, "m": 1e-3}


def spellings(name: str) -> list[str]:
    """A name in the spellings that are looked up, the given one first: "A100 80 GB" ->
    "a100-80gb"."""
    word = re.sub(r"(\d)-(gb?)\b", r"\1\2", plain(name.replace(":", "-")))
    return list(dict.fromkeys([name, name.lower(), word]))


def alike(kind: str, name: str, known: Sequence[str]) -> list[str]:
    """Known names like this one, best first. Models and GPUs are offered of the same family, or
    else models of the same size: never a near spelling of another thing."""
    word = spellings(name.rpartition("/")[2] if kind == "models" else name)[-1]
    close = difflib.get_close_matches(word, known, n=40, cutoff=_ALIKE)
    if kind not in ("models", "gpus"):
        return close
    family = [candidate for candidate in close if _same_family(word, candidate)]
    if kind == "gpus":
        return [candidate for candidate in family if _same_part(word, candidate)]
    return sorted(family, key=lambda candidate: not candidate.startswith(word)) or _of_size(
        word, known
    )


def _same_family(first: str, other: str) -> bool:
    a, b = _family(first), _family(other)
    return a == b or difflib.SequenceMatcher(None, a, b).ratio() >= _SAME_FAMILY


def _same_part(first: str, other: str) -> bool:
    """Whether two GPUs have the same number, or one name is cut off before the number; A10 and A100
    differ."""
    a, b = sorted((_part(first), _part(other)), key=len)
    return a == b or (len(a) >= _PART_DIGITS and b.startswith(a))


def _part(name: str) -> str:
    match = re.search(r"\d{1,9}", name)
    return match[0] if match else ""


def _family(name: str) -> str:
    """Letters before the first number: "llama-3.1-8b" -> "llama", "a100" -> "a"."""
    return re.split(r"\d", name, maxsplit=1)[0].strip("-") or name


def _of_size(word: str, known: Sequence[str]) -> list[str]:
    size = _billions(word)
    if size is None:
        return []
    sized = [
        (abs(1 - other / size), candidate) for candidate in known if (other := _billions(candidate))
    ]
    return [candidate for gap, candidate in sorted(sized) if gap < _SAME_SIZE - 1]


def _billions(name: str) -> float | None:
    """Billions of parameters that a name states: "qwen2.5-32b" -> 32."""
    match = _SIZE.search(name)
    return float(match[1]) * _BILLION[match[2]] if match else None
