"""One request of `dpplan calibrate`, as it passes from the command to the workers, and where a
worker stands."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any

from planner.calibrate.cases import Case, Mode

# glibc returns large buffers to the system at every free and faults them in again: 13 to 21 % of a
# step. Both calibration and verification run with it switched off; the file says so
MALLOC = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "20000000000",
    "MALLOC_TOP_PAD_": "268435456",
}


@dataclass(frozen=True)
class Settings:
    """What a worker does."""

    records: str  # raw records, written by rank 0
    out: str | None = None  # calibration file; None: verification
    mode: Mode = "default"
    threads: int = 1
    timeout_s: float = 120.0  # a rank that does not come to a case within it is reported
    cases: tuple[dict[str, Any], ...] = ()  # decoders of a verification
    precision: str = "fp32"
    calibration: str | None = None
    storage: str | None = None  # folder that checkpoints go to; None: that of the records

    def text(self) -> str:
        return json.dumps(asdict(self))

    def decoders(self) -> list[Case]:
        return [Case(**one) for one in self.cases]


def read(text: str) -> Settings:
    given = json.loads(text)
    return Settings(**{**given, "cases": tuple(given["cases"])})


@dataclass(frozen=True)
class Place:
    """Which of the ranks this process is; what torchrun, Slurm and our own launcher say in the
    environment."""

    rank: int
    ranks: int
    local_rank: int
    per_node: int


def place() -> Place:
    get = os.environ.get
    ranks = int(get("WORLD_SIZE", "1"))
    return Place(
        int(get("RANK", "0")),
        ranks,
        int(get("LOCAL_RANK", get("RANK", "0"))),
        int(get("LOCAL_WORLD_SIZE", str(ranks))),
    )


def environment(threads: int) -> dict[str, str]:
    """What a worker's environment must hold before it starts."""
    return {**MALLOC, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


def tell(**message: Any) -> None:
    """One line of JSON on stdout for whoever started this worker."""
    print(json.dumps(message), file=sys.stdout, flush=True)
