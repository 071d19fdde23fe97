"""A configuration of a training step, and what was counted of it: rows of the recorded table."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[2] / "tests/data/frameworks.csv"
COMPILED = TABLE.with_name("compiled.csv")  # bytes that compiled models save for backward

DEEPSPEED_BUCKET = 1_000_000  # elements of buckets of small models in DeepSpeed


@dataclass(frozen=True)
class Setting:
    """A training step of one framework."""

    framework: str
    model: str  # config.json of transformers, compact
    micro_batch: int = 1
    seq_len: int = 2048
    accumulation: int = 1  # micro-batches of a step
    # mixed: bf16 autocast over weights in fp32, with adapters over a base in bf16; bf16: all of it
    precision: str = "mixed"
    recompute: str = "none"
    attention: str = "sdpa"
    optimizer: str = "fused"  # implementation of torch's AdamW
    ranks: int = 1
    zero: int = 0
    lora: int = 0  # rank of adapters on all linear layers
    task: str = ""  # objective of a trainer of TRL
    tensor: int = 1  # tensor-parallel ranks
    pipeline: int = 1  # stages
    stage: int = 0  # the one that is counted
    schedule: str = ""

    @property
    def base(self) -> str:
        """Type in which the weights are loaded."""
        return "fp32" if self.precision == "mixed" and not self.lora else "bf16"

    @property
    def replicas(self) -> int:
        """Data-parallel ranks."""
        return self.ranks // (self.tensor * self.pipeline)

    @property
    def config(self) -> dict[str, Any]:
        """The model as transformers reads it."""
        fields_of: dict[str, Any] = json.loads(self.model)
        return fields_of


@dataclass(frozen=True)
class Counted:
    """Bytes of the second step: of states, of activations before the loss, and the fullest moment
    of every phase."""

    parameters: int
    gradients: int
    states: int
    activations: int
    logits: int
    forward: int
    loss: int
    backward: int
    step: int
    peak: int


_SETTING, _COUNTED = ([f.name for f in fields(kind)] for kind in (Setting, Counted))
Row = tuple[Setting, Counted, str]
_QUOTE = "'"  # of models, whose JSON has double ones


def compact(config: dict[str, Any]) -> str:
    """A config in one line, keys in order."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"))


def read(path: Path = TABLE) -> list[Row]:
    """Settings, what was counted, and the versions that it was counted with."""
    rows: list[Row] = []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, quotechar=_QUOTE):
            kinds = {f.name: int if f.type == "int" else str for f in fields(Setting)}
            setting = Setting(**{name: kinds[name](row[name]) for name in _SETTING})
            rows.append(
                (setting, Counted(**{name: int(row[name]) for name in _COUNTED}), row["versions"])
            )
    return rows


def write(rows: Iterable[Row], path: Path = TABLE) -> None:
    """The table, sorted, so that a new run changes only what differs."""
    ordered = sorted(rows, key=lambda row: tuple(map(str, asdict(row[0]).values())))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n", quotechar=_QUOTE)
        writer.writerow([*_SETTING, *_COUNTED, "versions"])
        for setting, counted, versions in ordered:
            writer.writerow([*asdict(setting).values(), *asdict(counted).values(), versions])


def fewer(rows: Sequence[Row], count: int) -> list[Row]:
    """So many rows, spread over the table."""
    return [rows[i * len(rows) // count] for i in range(min(count, len(rows)))]
