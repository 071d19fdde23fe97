"""A mechanism: a way to train that can be on or off, with its options, memory and time.

Each is a module of planner/mechanisms, found by being there. An active one is a frozen record of
its settings in `Plan.mechanisms`; the estimate asks each active one at the same places, its hooks.
Numbers of a stage and of a step are columns of one value per layout: arithmetic and numpy's where,
minimum, maximum and clip take them, and `ledger.rowwise` hands them to other code as plain arrays.

Nothing heavy is imported here: `--help` reads the options of every mechanism. Their modules import
numpy and formulas inside the hooks that use them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

if TYPE_CHECKING:
    from planner.ledger import Array, Ledger
    from planner.specs.columns import Columns


class Needed(NamedTuple):
    """An option that a stack may lack.

    has(stack): words of the option that it has; words: all of them, none of an option that is a
    switch or a number, which a stack has or has not; graded: of one that a stack has more or less
    widely, the least first.
    """

    option: str
    title: str
    has: Callable[[Any], Any]
    words: Sequence[str] = ()
    graded: bool = False


class Acts(NamedTuple):
    """Where options do something, so that a request that states them has no other layout.

    could(request): whether some layout of its GPUs is there; where: layouts that are.
    """

    options: tuple[str, ...]
    could: Callable[[Any], bool]
    where: Callable[[Columns], Array]


@dataclass(frozen=True)
class Stage:
    """A pipeline stage of every layout."""

    layout: Columns
    elements: Array  # trained weights of it on a rank, before data parallelism shards them
    owned: Array  # of these, what the rank's optimizer updates


@dataclass(frozen=True)
class Gradients:
    """Gradients of a stage of every layout, in elements on a rank, and what updates take."""

    shards: Array  # ranks that share them
    layer: Array
    tensor: Array  # the largest weight of a layer
    head: Array
    last: Array  # head and final norm
    words: Array  # embedding
    tied: bool  # whether the head is the embedding
    each: float  # bytes of one
    temporary: float  # bytes of the optimizer's buffers per element that it updates
    product: Array  # bytes of the largest one as a GEMM gives it
    as_given: bool  # whether the optimizer reads it in that type


@dataclass(frozen=True)
class Step:
    """The slowest stage of every layout, once its weights are updated."""

    layout: Columns
    machine: Any  # numbers of the GPU, its links and its host: estimate.machine.Machine
    owned: Array  # elements that a rank's optimizer updates
    ranks_per_host: float
    seconds: Array  # of the step so far


@dataclass(frozen=True)
class Sharded:
    """Weights that ZeRO-3 shards: of a layer or of a stage, of every layout."""

    layout: Columns
    elements: Array  # before they are sharded
    each: float  # bytes of one as kernels read it
    ranks: Array  # over which they are sharded


class Codes(NamedTuple):
    """Quantised codes sent in place of values: bytes per value, and passes that encode and
    decode."""

    bytes: float
    times: int


@dataclass(frozen=True)
class Bytes:
    """Memory that a mechanism adds to a stage: by leaf in every phase, and in host memory."""

    leaves: Ledger = field(default_factory=dict)
    host: Array = 0.0


class Mechanism:
    """Base of mechanisms: nothing is added. A subclass is a frozen dataclass of settings."""

    NAME: ClassVar[str]
    OFF: ClassVar[str]  # what holds without it, for ablations
    SOURCE: ClassVar[str]
    OPTIONS: ClassVar[type[Any]]  # a record of options
    EXAMPLE: ClassVar[Mapping[str, Any]] = {}  # options beside which the examples of its own act
    NEEDS: ClassVar[tuple[Needed, ...]] = ()
    ACTS: ClassVar[Acts | None] = None  # None: in every layout
    # leaves that it adds: of memory, with what they hold, and those of them that are allocated
    # once; of the step, with the bottleneck that they are and what they hold
    MEMORY: ClassVar[Mapping[str, str]] = {}
    LASTING: ClassVar[tuple[str, ...]] = ()
    STEP: ClassVar[Mapping[str, tuple[str, str]]] = {}

    @classmethod
    def of(cls, options: Any) -> Self | None:
        """The settings of a request; None where the mechanism is off."""
        raise NotImplementedError

    @classmethod
    def rules(cls) -> tuple[Any, ...]:
        """Rules that layouts have to meet while it is on: of formulas.rules."""
        return ()

    def memory(self, stage: Stage) -> Bytes:
        """Memory that it adds to a stage."""
        return Bytes()

    def gathered(self, stage: Sharded) -> Array:
        """Bytes of weights that lie gathered on a rank during the passes."""
        return 0.0

    def coded(self, what: Literal["weights", "gradients"]) -> Codes | None:
        """How what shards gather and reduce is quantised; None: not at all."""
        return None

    def gathered_again(
        self, layer: Sharded, all_gather_s: Callable[[Array, Array], Array]
    ) -> Array | None:
        """Seconds in which the backward pass gathers a layer from copies near by; None: from all
        ranks that shard it. all_gather_s(bytes, ranks): of ranks that are neighbours."""
        return None

    def kept_load(self) -> float | None:
        """Load of a rank's experts, in means, that what they keep for backward has room for; None:
        of the fullest rank, or the capacity."""
        return None

    def gradient_passes(self) -> float | None:
        """Passes of a step over gradients; None: as many as without it."""
        return None

    def freed(self, phases: list[Ledger], of: Gradients) -> list[Ledger] | None:
        """Ledgers of the phases of a stage with gradients that do not outlive the update of their
        weight; None: they do."""
        return None

    def beside_cpu_update(self, backward: Array, components: Ledger) -> Array:
        """Seconds behind which an update on the CPU hides. backward: of one micro-batch;
        components: of the step before the update."""
        return 0.0

    def after_update(self, step: Step) -> Ledger:
        """Seconds after the update of the weights that nothing hides, by component."""
        return {}
