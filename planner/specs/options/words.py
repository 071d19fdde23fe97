"""Reading a text as the value of an option: a word, a synonym, or an abbreviated number."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from planner.specs.options.row import Alias, Row
from planner.units import in_unit, parse, parse_context, parse_count, parse_whole

_ALIKE = 0.6  # similarity below which a word is not a misspelling of another (difflib's default)


def plain(word: str) -> str:
    """A word without case, spaces and underscores: "BF16" -> "bf16", "full shard" ->
    "full-shard"."""
    return "-".join(word.strip().lower().replace("_", " ").split())


def near(word: str, known: Iterable[str], most: int = 2, cutoff: float = _ALIKE) -> str:
    """ "did you mean x or y? ", "" where nothing known is like the word."""
    close = difflib.get_close_matches(plain(word)[:100], list(known), most, cutoff)
    return f"did you mean {' or '.join(close)}? " if close else ""


def meaning(row: Row, text: str) -> Any:
    """Value of a word, or the text in plain spelling where the option parses it further. Raises
    ValueError with a sentence."""
    if row.says.reads:
        return counted(row, text)
    word = plain(text)
    for choice in row.choices:
        if plain(str(choice)) == word:
            return choice
    match = alias(row, text)
    if match is not None and match.value is None:
        raise ValueError(match.note)
    if match is not None:
        return match.value
    known = [*row.choices, *(other.word for other in row.says.aliases if other.value is not None)]
    if row.choices:
        meaning_text = f" ({row.says.help})" if row.says.argument else ""
        raise ValueError(f"{near(word, known)}must be {_listed(row.choices)}{meaning_text}")
    if row.kind is int and not word.strip("+-").isdecimal():
        raise ValueError(f"{near(word, known)}must be a whole number, or one of {', '.join(known)}")
    return word


def alias(row: Row, text: str) -> Alias | None:
    """The entry of the table for this word, None where it is a value itself or unknown."""
    word = plain(text)
    return next(
        (other for other in row.says.aliases if other.word == word and word != other.value), None
    )


def counted(row: Row, text: str) -> float | int:
    """Number of a text such as 128k, in the unit of the option. Raises ValueError with a
    sentence."""
    value = counter(row)(text)
    if row.kind is not int:
        return value
    if value != int(value):
        raise ValueError("must be a whole number")
    return int(value)


def counter(row: Row) -> Callable[[str], float]:
    """How an option reads a number that is written short."""
    reads = row.says.reads or row.says.unit
    if reads == "context":
        return parse_context
    if reads == "tokens":
        return parse_count
    if row.kind is int:
        return parse_whole
    return lambda text: in_unit(parse(text, reads or "1"), reads or "1")


def reading(row: Row, text: str, value: Any) -> str:
    """How a text was read, for the answer to say; "" where it is the value itself."""
    if row.says.reads == "context":
        return "" if text.strip().isdigit() else f"{row.flag} {text} is {value:,} tokens"
    match = alias(row, text)
    if match is None:
        return ""
    return f"{row.flag} {text} is read as {value}" + (f": {match.note}" if match.note else "")


def _listed(words: Sequence[Any]) -> str:
    *first, last = (f"'{word}'" for word in words)
    return f"{', '.join(first)} or {last}" if first else last
