"""Options: how the experts of a mixture are shared out, and how tokens reach them."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.names import DispatcherName, ExpertKernels
from planner.specs.options.record import Record
from planner.specs.options.row import Group
from planner.specs.options.verbs import SEARCHES


@dataclass(frozen=True, kw_only=True)
class ExpertOptions(Record):
    """Refused for a dense model (inputs.experts)."""

    GROUP: ClassVar = Group("experts", "Mixture of experts")
    VERBS: ClassVar = SEARCHES
    WHY_NOT: ClassVar = (
        "applies to a mixture of experts, whose expert parallelism strategies do not model"
    )

    etp: int | None = None
    expert_kernels: ExpertKernels | None = None
    dispatcher: DispatcherName | None = None
    expert_load: float | None = None
    expert_spread: float | None = None
    capacity_factor: float | None = None
