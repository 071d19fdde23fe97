"""Names of values in other programs, and what they are called here (planner/data/words.json).

A row of a kind has our value (`is`), or a sentence on words that are understood and not modelled
(`refused`), and the words of each program; `dpplan` are those that people type for an option, with
a `note` on the part of their meaning that is not modelled. Their case, spaces and underscores make
no difference. The first word of a program is the one that is written.

Sources of the spellings: arguments.py of Megatron-LM, config.json of DeepSpeed, TrainingArguments
and OptimizerNames of transformers, the schedules of torch.distributed.pipelining, ShardingStrategy
of torch.distributed.fsdp, base.yml of MaxText.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from planner.specs.options.row import Alias

_FILE = Path(__file__).parents[2] / "data" / "words.json"


@cache
def kinds() -> dict[str, list[dict[str, Any]]]:
    """The rows of each kind."""
    out: dict[str, list[dict[str, Any]]] = json.loads(_FILE.read_text("utf-8"))
    return out


def aliases(kind: str) -> tuple[Alias, ...]:
    """Other words for the values of an option. Raises KeyError for an unknown kind."""
    return tuple(
        Alias(word, row.get("is"), row.get("refused") or row.get("note", ""))
        for row in kinds()[kind]
        for word in row.get("dpplan", ())
    )


def words(kind: str, program: str) -> dict[str, Any]:
    """Our values by the words of a program."""
    return {word: row["is"] for row in kinds()[kind] for word in row.get(program, ())}


def written(kind: str, program: str) -> dict[Any, str]:
    """The words that are written for our values."""
    return {row["is"]: row[program][0] for row in kinds()[kind] if program in row}
