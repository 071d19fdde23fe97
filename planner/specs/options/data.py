"""Options: what makes ranks differ, and the data that they read."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from planner.specs.names import Packing, Split
from planner.specs.options.record import Record
from planner.specs.options.row import Group, Needs, beside, option, rows
from planner.specs.options.verbs import (
    INPUT,
    METHODS,
    OF_SEQUENCES,
    PARTS,
    PHASES,
    REQUESTS,
    WHOLE_STEPS,
)

_TWO_KINDS = WHOLE_STEPS - {"recommend cluster"}
_ONE_KIND = "is of a second GPU type, which this verb does not look at"
_LOADING = WHOLE_STEPS - {"strategies"} | INPUT
# verbs that tell waiting for data alone; others also how much of everything keeps up
_WAITING = _LOADING - {"estimate", "search"} - INPUT
_NOT_LOADED = "is of loading, which this verb does not look at"
_OF_TWO = beside("is of a second kind of GPU", "other_gpu")
_OF_LENGTHS = beside("applies to documents of different lengths", "length_mean")
_NOT_OF_PARTS = "changes whole steps, not a part of one"


@dataclass(frozen=True, kw_only=True)
class RankOptions(Record):
    """What makes a step wait for its slowest rank."""

    GROUP: ClassVar = Group("ranks", "Stragglers and heterogeneity")
    VERBS: ClassVar = WHOLE_STEPS
    WHY_NOT: ClassVar = _NOT_OF_PARTS

    jitter: Annotated[
        float | str | None,
        option(
            "Jitter: standard deviation of a rank's step time over its mean; the step waits for"
            " the slowest rank",
            label="Jitter of a rank",
            unit="1",
            least=1e-6,
            most=1,
            or_zero=True,
            example="2%",
            form="shown",
        ),
    ] = None
    slow_hosts: Annotated[
        float | str | None,
        option(
            "Probability that a host is a straggler",
            label="Probability of a straggler",
            unit="1",
            least=1e-9,
            most=1,
            or_zero=True,
            example="5%",
            form="shown",
        ),
    ] = None
    slow_factor: Annotated[
        float | None,
        option(
            "Slowdown of a straggling host: its compute time over that of the others",
            label="Slowdown of a straggler",
            least=1,
            most=100,
            example="1.5",
            unset="1.1",
            needs=beside("is of slow hosts", "slow_hosts"),
            form="folded",
        ),
    ] = None
    other_gpu: Annotated[
        str | None,
        option(
            "Second GPU type of a heterogeneous cluster; a host has GPUs of one type",
            label="Second GPU type",
            catalogue="gpus",
            example="v100",
            verbs=_TWO_KINDS,
            why_not=_ONE_KIND,
            form="folded",
        ),
    ] = None
    other_share: Annotated[
        float | str | None,
        option(
            "Share of the GPUs that are of the second type",
            label="Share of the second type",
            unit="1",
            most=1,
            least=1e-6,
            example="50%",
            needs=_OF_TWO,
            verbs=_TWO_KINDS,
            why_not=_ONE_KIND,
            form="folded",
        ),
    ] = None
    split: Annotated[
        Split | None,
        option(
            "How the batch is split between the two GPU types: equal or proportional to speed",
            label="Split of the batch",
            example="proportional",
            needs=_OF_TWO,
            unset="equal",
            verbs=_TWO_KINDS,
            why_not=_ONE_KIND,
            form="folded",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class LengthOptions(Record):
    """Documents of different lengths."""

    GROUP: ClassVar = Group("data", "Documents and data loading")
    VERBS: ClassVar = REQUESTS - PHASES
    WHY_NOT: ClassVar = OF_SEQUENCES

    length_mean: Annotated[
        float | None,
        option(
            "Mean document length in tokens, of a log-normal distribution",
            label="Mean document length",
            reads="tokens",
            example="300",
            unset="every sequence is full",
            least=1,
            most=1e9,
            form="shown",
        ),
    ] = None
    length_sigma: Annotated[
        float | None,
        option(
            "Sigma of the log-normal document length",
            label="Sigma of document length",
            least=1e-4,
            most=4,
            or_zero=True,
            example="1.5",
            unset="1",
            needs=_OF_LENGTHS,
            form="folded",
        ),
    ] = None
    packing: Annotated[
        Packing | None,
        option(
            "Sequence packing: packed holds several documents that do not attend to each other;"
            " padded one, as long as a sequence; longest one, as long as the longest of its"
            " micro-batch; bucketed the same, with documents of like lengths together"
            " (group_by_length of transformers)",
            label="Sequence packing",
            example="padded",
            unset="packed; padded where the model attends to blocks of tokens or to chosen ones",
            needs=_OF_LENGTHS,
            form="folded",
        ),
    ] = None
    longest_row: Annotated[
        int | None,
        option(
            "Tokens of the longest document where rows are as long as the longest of their"
            " micro-batch; sets the peak of memory",
            label="Longest row (tokens)",
            reads="context",
            least=1,
            most=100_000_000,
            example="512",
            unset="a whole sequence",
            verbs=REQUESTS - PARTS - PHASES - METHODS - {"batch", "strategies"},
            why_not="changes memory alone, and follows from the examples of `dpplan tune`",
            needs=Needs(
                lambda given: given.packing in ("longest", "bucketed"),
                "is of rows that are as long as their longest document: give --packing longest",
                "--packing longest",
            ),
            form="folded",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class LoadingOptions(Record):
    """The way of samples from storage to the GPU."""

    GROUP: ClassVar = LengthOptions.GROUP
    VERBS: ClassVar = _LOADING
    WHY_NOT: ClassVar = _NOT_LOADED

    sample_bytes: Annotated[
        float | str | None,
        option(
            "Size of a sample in storage",
            label="Size of a sample",
            unit="B",
            least=1,
            most=1e12,
            example="1 MB",
            unset="the stored tokens of a sequence",
            form="folded",
        ),
    ] = None
    token_bytes: Annotated[
        float | None,
        option(
            "Bytes of a stored token",
            label="Bytes of a stored token",
            most=64,
            least=0.125,
            example="4",
            unset="2, or 4 from a vocabulary of 65,500 on",
            verbs=_LOADING - INPUT,
            form="folded",
        ),
    ] = None
    decoded_bytes: Annotated[
        float | str | None,
        option(
            "Size of a decoded sample in host memory, as it is copied to the GPU",
            label="Size of a decoded sample",
            unit="B",
            least=1,
            most=1e13,
            example="4 MB",
            form="folded",
        ),
    ] = None
    read_bytes: Annotated[
        float | str | None,
        option(
            "Size of one read from storage",
            label="Size of a read",
            unit="B",
            least=1,
            most=1e12,
            example="256 KiB",
            unset="a sample",
            needs=beside(
                "is the size of the reads that are counted",
                "data_iops",
                "read_latency",
                verbs=_WAITING,
            ),
            form="folded",
        ),
    ] = None
    data_storage: Annotated[
        str | None,
        option(
            "Storage of the training data: local-nvme, parallel-fs, object-store, nfs, or its read"
            " bandwidth, e.g. '40 GB/s'",
            label="Storage of the data",
            unit="B/s",
            needs_unit=("GB/s", "Gbit/s"),
            catalogue="storage",
            least=1e3,
            most=1e15,
            example="nfs",
            form="shown",
        ),
    ] = None
    data_iops: Annotated[
        float | None,
        option(
            "Reads per second (IOPS) that the storage of the data answers",
            label="Storage IOPS",
            least=1e-3,
            most=1e12,
            example="1000",
            form="folded",
        ),
    ] = None
    read_latency: Annotated[
        str | None,
        option(
            "Latency of one read from storage",
            label="Read latency",
            unit="s",
            least=1e-9,
            needs_unit=("ms", "s"),
            most=3600,
            or_zero=True,
            example="10 ms",
            unset="0 s",
            needs=beside("is what workers wait for", "workers", verbs=_WAITING),
            form="folded",
        ),
    ] = None
    worker_rate: Annotated[
        float | None,
        option(
            "Samples per second that one data-loader worker decodes",
            label="Samples per second of a worker",
            least=1e-4,
            most=1e9,
            example="100",
            needs=beside("is of one worker", "workers", verbs=_WAITING),
            form="folded",
        ),
    ] = None
    workers: Annotated[
        int | None,
        option(
            "Data-loader workers per replica",
            label="Workers per replica",
            least=1,
            most=1024,
            example="4",
            needs=beside(
                "is how many load at a time", "worker_rate", "read_latency", verbs=_WAITING
            ),
            form="folded",
        ),
    ] = None
    prefetch: Annotated[
        int | None,
        option(
            "Batches that each data-loader worker prefetches",
            label="Batches prefetched per worker",
            least=1,
            most=1024,
            example="4",
            unset="2",
            verbs=frozenset({"estimate", "search"}) | INPUT,
            why_not="sets the memory of loaders, which this verb does not state",
            form="folded",
        ),
    ] = None


LOADING = tuple(rows(LoadingOptions))
