"""Options: how replicas are kept in step."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from planner.specs.names import SYNC_PARTS, ZEROPP_PARTS, joined_words
from planner.specs.options.layout import LayoutOptions
from planner.specs.options.record import Record
from planner.specs.options.row import Needs, option
from planner.specs.options.verbs import METHODS, OF_METHODS, SEARCHES


def _shards_all(given: Any) -> bool:
    return given.zero in (None, 3)


def _sync_parts(text: str) -> str:
    return joined_words(text, SYNC_PARTS)


def _zeropp_parts(text: str) -> str:
    return joined_words(text, ZEROPP_PARTS)


_OF_REPLICAS = Needs(
    lambda given: given.dp != 1 and given.gpus != 1,
    "is of data parallelism: leave it out, or give --dp above 1",
)
_OF_ZERO_3 = Needs(_shards_all, "is of ZeRO++, which is ZeRO-3: take --zero 3", "--zero 3")


@dataclass(frozen=True, kw_only=True)
class ReplicaOptions(Record):
    """Communication between replicas."""

    GROUP: ClassVar = LayoutOptions.GROUP
    VERBS: ClassVar = SEARCHES
    WHY_NOT: ClassVar = "is set by each strategy, which is data-parallel alone"

    dp_overlap: Annotated[
        str | None,
        option(
            "Data-parallel communication that overlaps with compute: reduce (gradient"
            " reduction during the backward pass), forward and backward (all-gather of weights"
            " during these passes), joined by +; or none",
            label="Data parallel overlap",
            read=_sync_parts,
            example="reduce",
            unset="all that the stack overlaps",
            needs=_OF_REPLICAS,
            form="folded",
        ),
    ] = None
    dp_bucket: Annotated[
        float | str | None,
        option(
            "Gradient bucket size: the reduction of a bucket starts when it is full"
            " (reduce_bucket_size of DeepSpeed and ddp_bucket_size of Megatron-LM count"
            " elements: 2 bytes each, 4 for fp32 gradients)",
            label="Gradient bucket",
            unit="B",
            least=1000,
            most=1e13,
            example="64 MiB",
            unset="as the stack has it",
            needs=_OF_REPLICAS,
            verbs=SEARCHES - METHODS,
            why_not=OF_METHODS,
            form="folded",
        ),
    ] = None
    zeropp: Annotated[
        str | None,
        option(
            "Quantised collectives of ZeRO++: qwz (8-bit all-gather of weights), qgz (4-bit"
            " all-to-all reduction of gradients), joined by +",
            label="ZeRO++",
            read=_zeropp_parts,
            example="qwz+qgz",
            unset="16 bit",
            needs=_OF_ZERO_3,
            verbs=SEARCHES - METHODS,
            why_not=OF_METHODS,
            form="folded",
        ),
    ] = None
    hpz: Annotated[
        int | None,
        option(
            "GPUs that share a secondary copy of the weights, which the backward pass"
            " all-gathers (zero_hpz_partition_size of ZeRO++; usually a node's)",
            label="Secondary shards",
            least=2,
            most=1_000_000,
            example="8",
            unset="none",
            needs=_OF_ZERO_3,
            verbs=SEARCHES - METHODS,
            why_not=OF_METHODS,
            form="folded",
        ),
    ] = None
