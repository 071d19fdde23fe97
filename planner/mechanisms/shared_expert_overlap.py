"""Dispatch and combine of routed experts beside the compute of shared experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from planner.error import PlanError
from planner.mechanisms.ep_overlap import could_dispatch, dispatches
from planner.specs.mechanism import Acts, DispatchOverlap, Mechanism, Needed
from planner.specs.options.experts import ExpertOptions
from planner.specs.options.record import Record
from planner.specs.options.row import option

if TYPE_CHECKING:
    from planner.specs.plan import Plan


@dataclass(frozen=True, kw_only=True)
class SharedExpertOverlapOptions(Record):
    GROUP: ClassVar = ExpertOptions.GROUP
    VERBS: ClassVar = ExpertOptions.VERBS
    WHY_NOT: ClassVar = ExpertOptions.WHY_NOT

    shared_expert_overlap: Annotated[
        bool | None,
        option(
            "Dispatch and combine overlap with the shared experts",
            label="Overlap shared experts",
            unset="off",
            form="folded",
            free=(True,),
        ),
    ] = None


@dataclass(frozen=True)
class SharedExpertOverlap(Mechanism):
    """There is nothing to set."""

    NAME = "shared-expert-overlap"
    OFF = "shared experts wait for routed tokens"
    SOURCE = "--moe-shared-expert-overlap of Megatron-LM"
    OPTIONS = SharedExpertOverlapOptions
    EXAMPLE: ClassVar = {"model": "moonlight-16b-a3b", "stack": "megatron-core", "ep": 8}
    NEEDS = (
        Needed(
            "shared_expert_overlap",
            "overlap of shared experts",
            lambda stack: stack.supports.expert_overlap,
        ),
    )
    ARGUMENTS: ClassVar = {"megatron": {"moe-shared-expert-overlap": "shared_expert_overlap"}}
    ACTS = Acts(("shared_expert_overlap",), could_dispatch, dispatches)

    @classmethod
    def of(cls, options: Any) -> SharedExpertOverlap | None:
        return cls() if options.shared_expert_overlap else None

    def check(self, plan: Plan) -> None:
        moe = plan.model.routed
        if moe is None or not moe.shared_ffn_hidden:
            remedy = f"{plan.model.name} has no shared experts; leave it out"
            raise PlanError("--shared-expert-overlap", True, remedy)

    def dispatch_overlap(self) -> DispatchOverlap:
        return DispatchOverlap(shared=True)


MECHANISM = SharedExpertOverlap
