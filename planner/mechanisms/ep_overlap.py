"""Dispatch and combine of experts beside the compute of another micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from planner.error import PlanError
from planner.specs.mechanism import Acts, DispatchOverlap, Mechanism, Needed
from planner.specs.options.experts import ExpertOptions
from planner.specs.options.record import Record
from planner.specs.options.row import Needs, option

if TYPE_CHECKING:
    from planner.ledger import Array
    from planner.specs.columns import Columns
    from planner.specs.plan import Plan


@dataclass(frozen=True, kw_only=True)
class EpOverlapOptions(Record):
    GROUP: ClassVar = ExpertOptions.GROUP
    VERBS: ClassVar = ExpertOptions.VERBS
    WHY_NOT: ClassVar = ExpertOptions.WHY_NOT

    ep_overlap: Annotated[
        bool | None,
        option(
            "Dispatch and combine of experts overlap with the compute of another micro-batch",
            label="Overlap dispatch",
            unset="as the stack does",
            form="folded",
            free=(True,),
            start="first",
        ),
    ] = None
    dispatcher_sms: Annotated[
        int | None,
        option(
            "Streaming multiprocessors (SMs) that dispatch takes from overlapped compute",
            label="Multiprocessors of dispatch",
            least=1,
            most=1000,
            example="40",
            unset="20 for deepep, 16 for hybridep, else as NCCL",
            needs=Needs(
                lambda given: given.ep_overlap is True,
                "are taken from compute that runs beside dispatch: give --ep-overlap, too",
                "--ep-overlap",
            ),
            form="folded",
        ),
    ] = None


def could_dispatch(options: Any) -> bool:
    """Whether some layout of a request sends tokens between ranks."""
    return bool(options.ep != 1)


def dispatches(c: Columns) -> Array:
    """Layouts whose tokens are sent between ranks."""
    return c.ep > 1


@dataclass(frozen=True)
class EpOverlap(Mechanism):
    """on: whether it overlaps; multiprocessors: that dispatch works on, None: by its kernels."""

    on: bool
    multiprocessors: int | None

    NAME = "ep-overlap"
    OFF = "dispatch overlaps where recipes of the stack have it"
    SOURCE = (
        "--overlap-moe-expert-parallel-comm and moe_deepep_num_sms of Megatron-LM; DualPipe of"
        " DeepSeek-V3 (arXiv 2412.19437) section 3.2.1"
    )
    OPTIONS = EpOverlapOptions
    EXAMPLE: ClassVar = {"model": "moonlight-16b-a3b", "stack": "megatron-core", "ep": 8}
    NEEDS = (
        Needed(
            "ep_overlap", "overlap of expert dispatch", lambda stack: stack.supports.expert_overlap
        ),
    )
    ARGUMENTS: ClassVar = {"megatron": {"overlap-moe-expert-parallel-comm": "ep_overlap"}}
    ACTS = Acts(("ep_overlap",), could_dispatch, dispatches)

    @classmethod
    def of(cls, options: EpOverlapOptions) -> EpOverlap | None:
        on = options.ep_overlap
        return None if on is None else cls(on, options.dispatcher_sms)

    def check(self, plan: Plan) -> None:
        if plan.model.routed is None:
            remedy = f"sends tokens to experts, and {plan.model.name} has none; leave it out"
            raise PlanError("--ep-overlap", self.on, remedy)

    def dispatch_overlap(self) -> DispatchOverlap:
        return DispatchOverlap(another=self.on, multiprocessors=self.multiprocessors)


MECHANISM = EpOverlap
