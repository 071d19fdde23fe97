"""hpZ of ZeRO++: a second copy of the weights, sharded over few GPUs, usually of one node, from
which the backward pass gathers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from planner.mechanisms.zeropp import Zeropp, needs_zero_3
from planner.specs.mechanism import Acts, Mechanism, Needed, Sharded
from planner.specs.options.record import Record
from planner.specs.options.replicas import ReplicaOptions
from planner.specs.options.row import option
from planner.specs.options.verbs import METHODS, OF_METHODS, SEARCHES

if TYPE_CHECKING:
    from planner.ledger import Array


@dataclass(frozen=True, kw_only=True)
class HpzOptions(Record):
    GROUP: ClassVar = ReplicaOptions.GROUP
    VERBS: ClassVar = SEARCHES - METHODS
    WHY_NOT: ClassVar = OF_METHODS

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
            needs=needs_zero_3,
            form="folded",
        ),
    ] = None


@dataclass(frozen=True)
class Hpz(Mechanism):
    """ranks: that share the second copy."""

    ranks: int

    NAME = "hpz"
    OFF = "both gathers of weights are between all ranks"
    SOURCE = Zeropp.SOURCE
    OPTIONS = HpzOptions
    EXAMPLE = Zeropp.EXAMPLE
    NEEDS = (Needed("hpz", "secondary shards of ZeRO++", lambda stack: stack.supports.zeropp),)
    ACTS = Acts(("hpz",), Zeropp.ACTS.could, Zeropp.ACTS.where)

    @classmethod
    def of(cls, options: HpzOptions) -> Hpz | None:
        return None if options.hpz is None else cls(options.hpz)

    def near(self, layer: Sharded) -> Array:
        import numpy as np

        return np.minimum(float(self.ranks), layer.ranks)

    def gathered(self, stage: Sharded) -> Array:
        return stage.each * stage.elements / self.near(stage)


MECHANISM = Hpz
