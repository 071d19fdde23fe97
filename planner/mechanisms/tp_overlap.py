"""Overlap of tensor-parallel collectives with GEMMs: torch's asynchronous tensor parallelism, or
user buffers of Transformer Engine. The overlap that a stack's recipes have by default is a number
of the stack (`overlap.tensor_hidden`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args

from planner.error import PlanError
from planner.specs.mechanism import Acts, Mechanism, Needed
from planner.specs.names import TensorOverlap
from planner.specs.options.layout import SearchOptions
from planner.specs.options.record import Record
from planner.specs.options.row import Needs, option

if TYPE_CHECKING:
    from planner.ledger import Array, Sourced
    from planner.specs.columns import Columns
    from planner.specs.plan import Plan

# share of the collectives under sequence parallelism that GEMMs hide, all assumed
_HIDDEN: dict[TensorOverlap, tuple[float, str]] = {
    "none": (0.0, "nothing overlaps"),
    "async": (
        0.35,
        "asynchronous tensor parallelism of torch: GEMMs and collectives in chunks; refit of"
        " torchtitan's runs",
    ),
    "user-buffers": (
        0.75,
        "user buffers of Transformer Engine gather and reduce in chunks beside the GEMMs: over the"
        " validated runs of NeMo on Hopper, whose recipes have them",
    ),
}
_USER_BUFFER_STREAMS = 3.0  # initialize_ub of Transformer Engine, _NUM_MAX_UB_STREAMS


@dataclass(frozen=True, kw_only=True)
class TpOverlapOptions(Record):
    GROUP: ClassVar = SearchOptions.GROUP
    VERBS: ClassVar = SearchOptions.VERBS
    WHY_NOT: ClassVar = SearchOptions.WHY_NOT

    tp_overlap: Annotated[
        TensorOverlap | None,
        option(
            "Overlap of tensor-parallel collectives with GEMMs under sequence parallelism: none,"
            " async (torch's asynchronous tensor parallelism) or user-buffers (tp_comm_overlap of"
            " Transformer Engine)",
            label="Tensor parallel overlap",
            example="none",
            unset="as the stack does",
            needs=Needs(
                lambda given: given.tp != 1 and given.sequence_parallel is not False,
                "applies to tensor parallelism with sequence parallelism: leave it out, or give"
                " --tp above 1",
            ),
            form="folded",
            free="words",
            start="first",
        ),
    ] = None


def _possible(options: Any) -> bool:
    return bool(options.gpus > 1 and options.tp != 1)


def _sequence_parallel(c: Columns) -> Array:
    return (c.tp > 1) & (c.sequence_parallel > 0)


@dataclass(frozen=True)
class TpOverlap(Mechanism):
    """way: none, async or user-buffers, in place of the stack's default."""

    way: TensorOverlap

    NAME = "tp-overlap"
    OFF = "collectives of tensor parallelism overlap as the stack's recipes have it"
    SOURCE = (
        "torch/distributed/_symmetric_memory of PyTorch; tp_comm_overlap of Megatron-LM, user"
        " buffers of Transformer Engine"
    )
    OPTIONS = TpOverlapOptions
    EXAMPLE: ClassVar = {"tp": 2, "sequence_parallel": True, "stack": "nemo"}
    NEEDS = (
        Needed(
            "tp_overlap",
            "overlap of tensor parallelism",
            lambda stack: ("none", *stack.overlap.tensor_ways),
            get_args(TensorOverlap),
        ),
    )
    ACTS = Acts(("tp_overlap",), _possible, _sequence_parallel)

    @classmethod
    def of(cls, options: TpOverlapOptions) -> TpOverlap | None:
        return None if options.tp_overlap is None else cls(options.tp_overlap)

    def check(self, plan: Plan) -> None:
        """Both ways write into the memory of other GPUs of the node."""
        cluster = plan.cluster
        if self.way != "none" and not cluster.intra_node.peer_to_peer:
            remedy = (
                "needs copies from GPU to GPU, which do not pass through"
                f" {cluster.intra_node.title}: leave it out, or take --intra-node of a board with"
                " peer-to-peer"
            )
            raise PlanError("--tp-overlap", self.way, remedy)

    def numbers(self, plan: Plan) -> Mapping[str, Sourced]:
        from planner.ledger import Sourced

        if plan.training.overlap is False:
            return {}
        value, source = _HIDDEN[self.way]
        return {"tensor_hidden": Sourced(value, "1", "assumed", source)}

    def gemm_streams(self) -> float | None:
        return _USER_BUFFER_STREAMS if self.way == "user-buffers" else None


MECHANISM = TpOverlap
