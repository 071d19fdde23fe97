"""When the host updates states that are offloaded to it: after the backward pass, overlapped with
the last one, or delayed beside the next step, with weights that are one step old."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from planner.specs.mechanism import Mechanism, Running
from planner.specs.options.cluster import ClusterOptions
from planner.specs.options.named import OF_UPDATE
from planner.specs.options.record import Record
from planner.specs.options.row import option
from planner.specs.options.verbs import NO_UPDATE, UPDATES

if TYPE_CHECKING:
    from planner.ledger import Array


@dataclass(frozen=True, kw_only=True)
class CpuUpdateOptions(Record):
    GROUP: ClassVar = ClusterOptions.GROUP
    VERBS: ClassVar = UPDATES
    WHY_NOT: ClassVar = NO_UPDATE

    cpu_update: Annotated[
        Literal["after", "overlapped", "delayed"],
        option(
            "When the host updates: after the backward pass, overlapped with it (SuperOffload), or"
            " delayed beside the next step (ZenFlow, ZeRO-Offload's delayed update)",
            label="Update on the CPU",
            example="delayed",
            needs=OF_UPDATE,
            form="folded",
        ),
    ] = "after"


@dataclass(frozen=True)
class CpuUpdate(Mechanism):
    """when: overlapped or delayed."""

    when: str

    NAME = "cpu-update"
    OFF = "the update on the CPU hides behind nothing"
    SOURCE = (
        "ZeRO-Offload, Ren et al. 2021 (arXiv 2101.06840), delayed parameter update; ZenFlow"
        " (arXiv 2505.12242); SuperOffload (arXiv 2509.21271)"
    )
    OPTIONS = CpuUpdateOptions
    EXAMPLE: ClassVar = {"offload": "optimizer"}

    @classmethod
    def of(cls, options: CpuUpdateOptions) -> CpuUpdate | None:
        return None if options.cpu_update == "after" else cls(options.cpu_update)

    def beside_cpu_update(self, running: Running) -> Array:
        return running.backward if self.when == "overlapped" else running.step


MECHANISM = CpuUpdate
