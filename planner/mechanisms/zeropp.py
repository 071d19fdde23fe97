"""ZeRO++: quantised collectives of ZeRO-3.

qwZ gathers weights in 8 bit and qgZ reduces gradients in 4 bit; the scales of blocks are not
counted. The second copy of its weights is `hpz`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from planner.specs.mechanism import Acts, Codes, Mechanism, Needed
from planner.specs.names import SHARDS_PARAMETERS, joined_words
from planner.specs.options.record import Record
from planner.specs.options.replicas import ReplicaOptions
from planner.specs.options.row import Needs, option
from planner.specs.options.verbs import METHODS, OF_METHODS, SEARCHES

if TYPE_CHECKING:
    from planner.ledger import Array
    from planner.specs.columns import Columns
    from planner.specs.stack import StackSpec

_PARTS = ("qwz", "qgz")
_QWZ_BYTES, _QGZ_BYTES = 1.0, 0.5
_QGZ_HOPS = 2  # inside the node, and between nodes
needs_zero_3 = Needs(
    lambda given: given.zero in (None, 3),
    "needs ZeRO++, which is ZeRO-3: take --zero 3",
    "--zero 3",
)


def _parts(text: str) -> str:
    return joined_words(text, _PARTS)


@dataclass(frozen=True, kw_only=True)
class ZeroppOptions(Record):
    GROUP: ClassVar = ReplicaOptions.GROUP
    VERBS: ClassVar = SEARCHES - METHODS
    WHY_NOT: ClassVar = OF_METHODS

    zeropp: Annotated[
        str | None,
        option(
            "Quantised collectives of ZeRO++: qwz (8-bit all-gather of weights), qgz (4-bit"
            " all-to-all reduction of gradients), joined by +",
            label="ZeRO++",
            read=_parts,
            example="qwz+qgz",
            unset="16 bit",
            needs=needs_zero_3,
            form="folded",
        ),
    ] = None


def _possible(options: Any) -> bool:
    left = options.gpus // ((options.tp or 1) * (options.pp or 1))
    return left > 1 and options.dp != 1


def _sharded(c: Columns) -> Array:
    return (c.zero >= SHARDS_PARAMETERS) & (c.replicas > 1)


def _has_parts(stack: StackSpec) -> tuple[str, ...]:
    return _PARTS if stack.supports.zeropp else ()


@dataclass(frozen=True)
class Zeropp(Mechanism):
    """codes: quantised collectives, qwz or qgz."""

    codes: tuple[str, ...]

    NAME = "zeropp"
    OFF = "weights and gradients travel in 16 bit"
    SOURCE = "ZeRO++, Wang et al. 2023 (arXiv 2306.10209) section 3"
    OPTIONS = ZeroppOptions
    EXAMPLE: ClassVar = {"zero": 3}
    NEEDS = (Needed("zeropp", "ZeRO++", _has_parts, _PARTS),)
    ACTS: ClassVar = Acts(("zeropp",), _possible, _sharded)

    @classmethod
    def of(cls, options: ZeroppOptions) -> Zeropp | None:
        return None if options.zeropp in (None, "none") else cls(tuple(options.zeropp.split("+")))

    def coded(self, kind: Literal["weights", "gradients"]) -> Codes | None:
        if kind == "weights":
            return Codes(_QWZ_BYTES, 1) if "qwz" in self.codes else None
        return Codes(_QGZ_BYTES, _QGZ_HOPS) if "qgz" in self.codes else None


MECHANISM = Zeropp
