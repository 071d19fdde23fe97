"""Lengths of a dataset's examples: of a file, or as published."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO

from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.options.words import near

FIELD = "--lengths"
# UTF-8 bytes per token: of English text with the vocabulary of 128,000 of Llama 3, "3.94 characters
# per token" (arXiv 2407.21783, section 3.2); Chinese has 3 bytes per character, and fewer of these
BYTES_PER_TOKEN = 3.94
_MOST_READ = 64 * 2**20  # bytes of lines: of a larger file lines at even distances are read
_SAMPLES = 20_000  # lines of it
_MOST_LINE = 16 * 2**20  # bytes
_COUNTS = ("num_tokens", "n_tokens", "token_count", "length", "input_length", "tokens")
_IDS = ("input_ids", "token_ids", "tokens")
_TEXTS = frozenset(
    {
        *("text", "content", "value", "prompt", "completion", "response", "instruction", "input"),
        *("output", "question", "answer", "query", "system", "problem", "solution", "history"),
        *("messages", "conversations", "conversation", "dialogue", "chosen", "rejected"),
    }
)
_PAIR = ("chosen", "rejected")


@dataclass(frozen=True)
class Lengths:
    """Examples of a dataset, in tokens. mean and deviation: of all lengths."""

    examples: int
    mean: float
    deviation: float
    says: str  # which examples these are

    @property
    def sigma(self) -> float:
        """Sigma of the log-normal with this mean and deviation, which sets the work of
        attention."""
        return math.sqrt(math.log1p((self.deviation / self.mean) ** 2))


def lengths_of(name: str) -> Lengths:
    """Lengths of a dataset by its name or Hub id in the shipped table, or of a file of JSON lines.
    Raises PlanError."""
    known = _published()
    if entry := known.get(name.lower()):
        return entry
    path = catalog.user_path(name, FIELD)
    if not catalog.is_path(name) and not path.suffix:
        hint = near(name, list(known)) or f"they are {', '.join([row['id'] for row in _rows()])}; "
        raise PlanError(
            FIELD, name, f"is not a dataset with published lengths; {hint}or give a file"
        )
    if path.suffix not in (".jsonl", ".json"):
        remedy = "is not JSON lines: convert it, or give --length-mean and --length-sigma"
        raise PlanError(FIELD, name, remedy)
    with catalog.opened(path, FIELD) as file:
        return _measured(file, path)


@cache
def _rows() -> list[dict[str, str]]:
    text = resources.files("planner.data").joinpath("datasets.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def _published() -> dict[str, Lengths]:
    """Published datasets by id, and by id of the Hub."""
    out = {}
    for row in _rows():
        entry = Lengths(
            int(row["examples"]),
            float(row["mean_tokens"]),
            float(row["deviation_tokens"]),
            f"as published ({row['source']})",
        )
        out.update({name.lower(): entry for name in (row["id"], row["hub"]) if name})
    return out


def _measured(file: BinaryIO, path: Path) -> Lengths:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    beginning = file.read(64).lstrip()[:1]
    file.seek(0)
    sampled = size > _MOST_READ
    if path.suffix == ".json" and beginning == b"[":
        if sampled:
            remedy = f"is one array of more than {_MOST_READ // 2**20} MiB: save it as JSON lines"
            raise PlanError(FIELD, str(path), remedy)
        whole = _parsed(file.read(), path, "the file")
        rows, examples = [(f"example {n}", row) for n, row in enumerate(whole, 1)], None
    else:
        lines = list(_spread(file, size) if sampled else file)
        numbered = ((n, line) for n, line in enumerate(lines, 1) if line.strip())
        places = (("a sampled line" if sampled else f"line {n}", line) for n, line in numbered)
        rows = [(where, _parsed(line, path, where)) for where, line in places]
        examples = round(size * len(lines) / max(sum(map(len, lines)), 1)) if sampled else None
    counted = [tokens for where, row in rows if (tokens := _stated(row, path, where))]
    if not counted:
        raise PlanError(FIELD, str(path), "has no example with text or a number of tokens")
    count = len(counted)
    mean = math.fsum(counted) / count
    deviation = math.sqrt(math.fsum((each - mean) ** 2 for each in counted) / count)
    which = f", of which {count:,} are sampled" if sampled else ""
    return Lengths(examples or count, mean, deviation, f"of {path.name}{which}")


def _spread(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Lines at even distances."""
    for place in range(_SAMPLES):
        file.seek(place * (size // _SAMPLES))
        file.readline(_MOST_LINE)  # what is left of a line
        if line := file.readline(_MOST_LINE).strip():
            yield line + b"\n"


def _parsed(text: bytes, path: Path, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        remedy = f"{where} is not JSON: give a file of JSON lines, or one JSON array"
        raise PlanError(FIELD, str(path), remedy) from None


def _stated(row: Any, path: Path, where: str) -> float:
    """Tokens of an example, 0 without text and count. Raises PlanError for a count in words."""
    tokens = _tokens(row)
    if not tokens and isinstance(row, dict):
        for name in _COUNTS:
            if row.get(name) is not None and not isinstance(row[name], list):
                why = f"{name} of {where} is {row[name]!r}, which is not a number of tokens above 0"
                raise PlanError(FIELD, str(path), f"{why}: mend it, or give --length-mean")
    return tokens


def _tokens(row: Any) -> float:
    """Tokens of an example: as it says, else by its bytes; of a pair the mean of both."""
    if isinstance(row, str):
        return _bytes(row) / BYTES_PER_TOKEN
    if not isinstance(row, dict):
        return 0.0
    for name in _IDS:
        if isinstance(row.get(name), list):
            return float(len(row[name]))
    for name in _COUNTS:
        count = row.get(name)
        if isinstance(count, int | float) and not isinstance(count, bool) and 0 < count < math.inf:
            return float(count)
    texts = {name: _bytes(value) for name, value in row.items() if name.lower() in _TEXTS}
    twice = min(texts.get(name, 0) for name in _PAIR) and sum(texts[name] for name in _PAIR) / 2
    return (sum(texts.values()) - twice) / BYTES_PER_TOKEN


def _bytes(value: Any) -> int:
    """Bytes of the texts in a value; of messages of what they hold."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, list):
        return sum(map(_bytes, value))
    if isinstance(value, dict):
        return sum(_bytes(inner) for name, inner in value.items() if name.lower() in _TEXTS)
    return 0
