"""Options: how replicas are kept in step."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from planner.specs.names import SYNC_PARTS, joined_words
from planner.specs.options.layout import LayoutOptions
from planner.specs.options.record import Record
from planner.specs.options.row import Needs, option
from planner.specs.options.verbs import METHODS, OF_METHODS, SEARCHES


def _sync_parts(text: str) -> str:
    return joined_words(text, SYNC_PARTS)


_OF_REPLICAS = Needs(
    lambda given: given.dp != 1 and given.gpus != 1,
    "is of data parallelism: leave it out, or give --dp above 1",
)


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
