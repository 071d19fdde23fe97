"""Parts of a step that are captured as CUDA graphs, which the GPU replays without the CPU. Whole
iterations that a stack's recipes capture unasked are a fact of theirs (`launch.captured`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from planner.error import PlanError
from planner.specs.mechanism import Mechanism, Needed, Replayed
from planner.specs.names import GRAPH_SCOPES, GraphScope
from planner.specs.options.record import Record
from planner.specs.options.row import option
from planner.specs.options.training import TrainingOptions
from planner.specs.options.verbs import REQUESTS

if TYPE_CHECKING:
    from planner.specs.plan import Plan

_ALONE = ("none", "full")  # beside which no other says anything
_LAYER_PARTS = ("layer", "attn", "mamba", "mlp")
# operators of routing, its permutation and bookkeeping; own count
_ROUTING: dict[GraphScope, float] = {"moe_router": 5.0, "moe_preprocess": 4.0}


@dataclass(frozen=True, kw_only=True)
class CudaGraphsOptions(Record):
    GROUP: ClassVar = TrainingOptions.GROUP
    VERBS: ClassVar = REQUESTS

    cuda_graphs: Annotated[
        str | None,
        option(
            "Parts of a step captured as CUDA graphs: none, attn, mamba, mlp, moe_router,"
            " moe_preprocess, layer or full, joined by +",
            label="CUDA graphs",
            example="attn+moe_router",
            unset="as the stack does",
            form="folded",
            free=("full", "layer", "attn+moe_router+moe_preprocess", "attn"),
            start="first",
        ),
    ] = None


def graph_scopes(text: str) -> tuple[GraphScope, ...]:
    """Scopes of CUDA graphs from their names joined by +."""
    names = [name.strip() for name in text.split("+")]
    for name in names:
        if name not in GRAPH_SCOPES or (name in _ALONE and len(names) > 1):
            remedy = (
                f"takes {', '.join(GRAPH_SCOPES)}, joined by +; none and full cannot be combined"
            )
            raise PlanError("--cuda-graphs", text, remedy)
    return tuple(scope for scope in GRAPH_SCOPES if scope in names)


@dataclass(frozen=True)
class CudaGraphs(Mechanism):
    """scopes: captured parts, in place of the stack's default."""

    scopes: tuple[GraphScope, ...]

    NAME = "cuda-graphs"
    OFF = "only what the stack captures is captured"
    SOURCE = "--cuda-graph-impl and --cuda-graph-scope of Megatron-LM"
    OPTIONS = CudaGraphsOptions
    EXAMPLE: ClassVar = {"model": "moonlight-16b-a3b", "stack": "megatron-core"}
    NEEDS = (
        Needed(
            "cuda_graphs",
            "scopes of CUDA graphs",
            lambda stack: stack.supports.cuda_graphs,
            GRAPH_SCOPES,
        ),
    )

    @classmethod
    def of(cls, options: Any) -> CudaGraphs | None:
        return None if options.cuda_graphs is None else cls(graph_scopes(options.cuda_graphs))

    def check(self, plan: Plan) -> None:
        model = plan.model
        if model.routed is None and _ROUTING.keys() & set(self.scopes):
            remedy = f"captures the routing of experts, and {model.name} has none"
            raise PlanError("--cuda-graphs", "+".join(self.scopes), remedy)

    def replayed(self) -> Replayed:
        return Replayed(
            "full" in self.scopes,
            tuple(part for part in _LAYER_PARTS if part in self.scopes),
            sum(n for scope, n in _ROUTING.items() if scope in self.scopes),
        )


MECHANISM = CudaGraphs
