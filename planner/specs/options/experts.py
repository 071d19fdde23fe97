"""Options: how the experts of a mixture are shared out, and how tokens reach them."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from planner.specs.names import DispatcherName, ExpertKernels
from planner.specs.options.record import Record
from planner.specs.options.row import Group, Needs, option
from planner.specs.options.verbs import SEARCHES

_MOST_RANKS = 1_000_000
MOST_TIMES = 1000  # the mean: more than there are ranks of experts in any run
_MOST_SPREAD = 100  # one expert of ten thousand has all tokens
_BY_STRATEGY = "is of a mixture of experts, whose expert parallelism strategies do not have"
_AS_STACK = "as the stack does"


def _overlaps(given: Any) -> bool:
    return given.ep_overlap is True


@dataclass(frozen=True, kw_only=True)
class ExpertOptions(Record):
    """Refused for a dense model (inputs.experts)."""

    GROUP: ClassVar = Group("experts", "Mixture of experts")
    VERBS: ClassVar = SEARCHES
    WHY_NOT: ClassVar = _BY_STRATEGY

    etp: Annotated[
        int | None,
        option(
            "Expert tensor-parallel degree: ranks that split every expert; with 1 experts are whole"
            " on neighbouring ranks, and ep may be as large as tp x dp x cp",
            label="Expert tensor parallel",
            least=1,
            most=_MOST_RANKS,
            example="2",
            unset="as the stack does: 1, or tp",
            form="folded",
        ),
    ] = None
    expert_kernels: Annotated[
        ExpertKernels | None,
        option(
            "How a rank computes its experts: loop (one after another), grouped (grouped GEMMs) or"
            " fused (a grouped GEMM with activation, bias and quantisation)",
            label="Kernels of experts",
            example="grouped",
            unset=_AS_STACK,
            form="folded",
        ),
    ] = None
    dispatcher: Annotated[
        DispatcherName | None,
        option(
            "How tokens reach their experts: alltoall (a copy per expert), allgather (all tokens to"
            " all ranks), deepep or hybridep (a copy per rank, one per node over the network)",
            label="Token dispatcher",
            example="deepep",
            unset=_AS_STACK,
            form="folded",
        ),
    ] = None
    ep_overlap: Annotated[
        bool | None,
        option(
            "Dispatch and combine of experts overlap with the compute of another micro-batch",
            label="Overlap dispatch",
            unset=_AS_STACK,
            form="folded",
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
                _overlaps,
                "are taken from compute that runs beside dispatch: give --ep-overlap, too",
                "--ep-overlap",
            ),
            form="folded",
        ),
    ] = None
    shared_expert_overlap: Annotated[
        bool | None,
        option(
            "Dispatch and combine overlap with the shared experts",
            label="Overlap shared experts",
            unset=_AS_STACK,
            form="folded",
        ),
    ] = None
    expert_load: Annotated[
        float | None,
        option(
            "Load imbalance of experts: tokens of the busiest expert rank over the mean; every"
            " layer waits for it",
            label="Load of the fullest rank",
            least=1,
            most=MOST_TIMES,
            example="1.5",
            unset="1: balanced",
            form="folded",
        ),
    ] = None
    expert_spread: Annotated[
        float | None,
        option(
            "Standard deviation of tokens per expert over their mean, beyond chance (0 for an"
            " even router); the load of the busiest rank follows from it, ep and the tokens of"
            " a micro-batch",
            label="Spread of expert loads",
            least=0,
            most=_MOST_SPREAD,
            example="0.3",
            unset="as the load of the fullest rank says",
            form="folded",
        ),
    ] = None
    capacity_factor: Annotated[
        float | None,
        option(
            "Expert capacity: most tokens that an expert rank takes, over the mean; the rest"
            " are dropped, and buffers have this size, filled or not",
            label="Capacity factor",
            least=1,
            most=MOST_TIMES,
            example="1.2",
            unset="none are dropped",
            form="folded",
        ),
    ] = None
