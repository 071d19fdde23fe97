"""One request of `dpplan calibrate`, as passed from the command to the ranks; the place of a rank;
its messages."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from typing import Any

import msgspec

from planner.calibrate.cases import Case, Mode

# glibc returns large buffers to the system at every free and faults them in again: 13 to 21 % of a
# step. Both calibration and verification run with it switched off; the file says so
MALLOC = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "20000000000",
    "MALLOC_TOP_PAD_": "268435456",
}
# exit statuses: the request is wrong, an error is beyond the tolerance, a rank died or hangs
WRONG, BEYOND, LOST = 2, 3, 4


class Failed(RuntimeError):
    """The run ended early; the message names the rank. What was measured is kept."""


@dataclass(frozen=True)
class Progress:
    """Progress reported to a watcher: cases with enough quiet samples of all, seconds that
    are left at most, and the share of disturbed moments."""

    stage: str
    done: int
    of: int
    left_s: float
    disturbed_frac: float = 0.0


@dataclass(frozen=True)
class Result:
    """Result of rank 0: the summary of a calibration, or the device of a verification."""

    result: dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """Settings of a rank."""

    records: str  # raw records, written by rank 0
    out: str | None = None  # calibration file; None: verification
    mode: Mode = "default"
    threads: int = 1
    timeout_s: float = 120.0  # a rank that does not come to a case within it is reported
    longest_case_s: float = 240.0  # in which a rank may say nothing, as while a decoder trains
    cases: tuple[Case, ...] = ()  # decoders of a verification
    precision: str = "fp32"
    calibration: str | None = None
    storage: str | None = None  # folder of checkpoints; None: the folder of the records

    @property
    def patience_s(self) -> int:
        """Seconds without a sign of life after which rank 0 hangs."""
        return round(self.timeout_s + self.longest_case_s)

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def read(text: str) -> Settings:
    return msgspec.json.decode(text, type=Settings)


@dataclass(frozen=True)
class Place:
    """Which of the ranks this process is; what torchrun says in the environment."""

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


def environment(settings: Settings) -> dict[str, str]:
    """Environment variables of a rank, set before it starts."""
    threads = str(settings.threads)
    counts = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {**MALLOC, **dict.fromkeys(counts, threads)}


def tell(message: Progress | Result) -> None:
    """One line of JSON on stdout for whoever started this rank. Where it cannot be written, as on a
    full disk, measuring goes on."""
    with contextlib.suppress(OSError):
        print(msgspec.json.encode(message).decode(), file=sys.stdout, flush=True)
