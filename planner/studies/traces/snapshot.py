"""A snapshot of torch's allocator (`torch.cuda.memory._dump_snapshot`): what was held, by what, and
what was free but reserved.

torch/cuda/memory.py documents the fields: `segments` with `blocks`, and `device_traces` with every
allocation of the recording.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from planner.specs.base import PlanError
from planner.studies.traces import pickles

MOST_BYTES = 160_000_000  # of a file
_PIECE = 1 << 20
_VERSIONS = (2, 3, 4, 5)  # of pickle's protocol: 1 and 0 are text


@dataclass
class Snapshot:
    """Bytes of one GPU. held: bytes of tensors by class; freest: the largest free piece;
    peak: highest that tensors held in the recording; short: (requested, free) if memory ran out."""

    reserved: float = 0.0
    allocated: float = 0.0
    freest: float = 0.0
    segments: int = 0
    held: dict[str, float] = field(default_factory=dict)
    peak: float = 0.0
    short: list[tuple[float, float]] = field(default_factory=list)

    @property
    def reserved_free(self) -> float:
        """Reserved from the driver, and held by no tensor."""
        return self.reserved - self.allocated


def is_one(head: bytes) -> bool:
    """Whether a file begins as a pickle does."""
    return head[:1] == b"\x80" and head[1:2] in map(bytes, zip(_VERSIONS, strict=True))


def read_snapshot(file: BinaryIO, path: Path, name: str) -> Snapshot:
    """The summary of a snapshot. Raises PlanError for a file that is broken, too large, or none."""
    limits = (str(pickles.MOST_MEMORY), str(pickles.MOST_S))
    words = [sys.executable, "-I", "-S", pickles.__file__, *limits]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        left = MOST_BYTES
        with suppress(BrokenPipeError):  # it has refused
            while left > 0 and (piece := file.read(min(left, _PIECE))):
                process.stdin.write(piece)
                left -= len(piece)
        too_large = left <= 0 and bool(file.read(1))
        with suppress(BrokenPipeError):
            process.stdin.close()
        text = process.stdout.read()
    if process.wait():
        raise PlanError(name, str(path), "is a broken pickle, or takes too long to read")
    said = json.loads(text)
    if too_large or said.get("refused") == "too large":
        remedy = (
            f"has more than {MOST_BYTES:,} bytes, or values of more than"
            f" {pickles.MOST_MEMORY:,} bytes; record less with"
            " _record_memory_history(max_entries=100_000)"
        )
        raise PlanError(name, str(path), remedy)
    if "refused" in said:
        raise PlanError(name, str(path), said["refused"])
    return Snapshot(**{**said, "short": [tuple(pair) for pair in said["short"]]})
