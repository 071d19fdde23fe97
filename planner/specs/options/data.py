"""Options: what makes ranks differ, and the data that they read."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.names import ExcessLength, Packing, Split
from planner.specs.options.record import Record
from planner.specs.options.row import Group
from planner.specs.options.table import rows
from planner.specs.options.verbs import LOADS, OF_SEQUENCES, PHASES, REQUESTS, WHOLE_STEPS


@dataclass(frozen=True, kw_only=True)
class RankOptions(Record):
    """Options of stragglers, for which a step waits."""

    GROUP: ClassVar = Group("ranks", "Stragglers and heterogeneity")
    VERBS: ClassVar = WHOLE_STEPS
    WHY_NOT: ClassVar = "changes whole steps, not a part of one"

    jitter: float | str | None = None
    slow_hosts: float | str | None = None
    slow_factor: float | None = None
    other_gpu: str | None = None
    other_share: float | str | None = None
    split: Split | None = None


@dataclass(frozen=True, kw_only=True)
class LengthOptions(Record):
    """Documents of different lengths."""

    GROUP: ClassVar = Group("data", "Documents and data loading")
    VERBS: ClassVar = REQUESTS - PHASES
    WHY_NOT: ClassVar = OF_SEQUENCES

    lengths: str | None = None
    length_mean: float | None = None
    length_sigma: float | None = None
    excess_length: ExcessLength | None = None
    short_length: int | None = None
    packing: Packing | None = None
    longest_row: int | None = None


@dataclass(frozen=True, kw_only=True)
class LoadingOptions(Record):
    """The way of samples from storage to the GPU."""

    GROUP: ClassVar = LengthOptions.GROUP
    VERBS: ClassVar = LOADS
    WHY_NOT: ClassVar = "applies to loading, which this verb does not look at"

    sample_bytes: float | str | None = None
    token_bytes: float | None = None
    decoded_bytes: float | str | None = None
    read_bytes: float | str | None = None
    data_storage: str | None = None
    data_iops: float | None = None
    read_latency: str | None = None
    worker_rate: float | None = None
    workers: int | None = None
    prefetch: int | None = None


LOADING = tuple(rows(LoadingOptions))
