"""A mechanism: a way to train that can be on or off, with its options, memory and time.

Each is a module of planner/mechanisms, found by being there. An active one is a frozen record of
its settings in `Plan.mechanisms`; the estimate asks each active one at the same places, its hooks,
and asks for a hook only where it is defined.

What differs between layouts reaches a hook as plain numpy arrays (float64, one value per layout, to
be read only), and plain arrays or numbers come back: all of numpy, and Python that loops over rows,
works in a hook. `estimate.mechanisms` converts, once, and only where a mechanism is on.

Nothing heavy is imported here: `--help` reads the options of every mechanism. Their modules import
numpy and formulas inside the hooks that use them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from planner.error import PlanError

if TYPE_CHECKING:
    from planner.ledger import Array, Ledger, Sourced
    from planner.specs.columns import Columns
    from planner.specs.names import OffloadName


class Needed(NamedTuple):
    """An option that a stack may lack.

    has(stack): words of the option that it has; words: all of them, none of an option that is a
    switch or a number, which a stack has or has not; graded: of one that a stack has more or less
    widely, the least first. stacks: in place of `has`, shipped stacks with the option and where
    their code has it; stacks whose `base` they are have it, too, and so do files of stacks that
    name it in `mechanisms` of their `[supports]`.
    """

    option: str
    title: str
    has: Callable[[Any], Any] | None = None
    words: Sequence[str] = ()
    graded: bool = False
    stacks: Mapping[str, str] = MappingProxyType({})


class Acts(NamedTuple):
    """Layouts in which options have an effect; a request that states them gets no other layout.

    could(request): whether any layout of its GPUs qualifies; where: mask of layouts.
    """

    options: tuple[str, ...]
    could: Callable[[Any], bool]
    where: Callable[[Columns], Array]


@dataclass(frozen=True)
class Stage:
    """Stage of a pipeline, one value per layout. Bytes are per rank, before offloading."""

    plan: Any  # what is trained, where, by which stack: specs.plan.Plan
    layout: Columns
    elements: Array  # trained weights of it on a rank, before data parallelism shards them
    owned: Array  # of these, what the rank's optimizer updates
    parameters: Array  # bytes
    optimizer: Array  # bytes
    element_bytes: float  # of a weight as kernels read it


@dataclass(frozen=True)
class Gradients:
    """Gradients of a stage, one value per layout: elements on a rank, and what their updates
    need."""

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


class Updated(NamedTuple):
    """Live bytes while weights of a stage are updated inside backward."""

    gradients: Array
    temporaries: Array  # buffers of the optimizer
    given: Array = 0.0  # of `Gradients.product`, what `gradients` counts already


class Alive(NamedTuple):
    """Live bytes at three moments: while a layer, the head or the embedding is updated."""

    layer: Updated
    head: Updated
    embedding: Updated


@dataclass(frozen=True)
class Room:
    """Optimizer-state bytes of a stage, and device bytes that are left for them, one value per
    layout."""

    optimizer: Array
    room: Array


@dataclass(frozen=True)
class Running:
    """Work that can hide an update on the CPU, one value per layout."""

    backward: Array  # seconds of the backward pass of one micro-batch
    step: Array  # seconds of the step before the update


@dataclass(frozen=True)
class Step:
    """The slowest stage of every layout, once its weights are updated."""

    plan: Any  # what is trained, where, by which stack: specs.plan.Plan
    layout: Columns
    machine: Any  # numbers of the GPU, its links and its host: estimate.machine.Machine
    owned: Array  # elements that a rank's optimizer updates
    on_cpu: Array  # seconds of their update on the CPU; 0 where the GPU updates
    evicted: Array  # bytes of the optimizer's states that were not on the GPU
    seconds: Array  # of the step so far
    ranks_per_host: float
    element_bytes: float  # of a weight as kernels read it
    optimizer_bytes: float  # of the optimizer's states of one element


@dataclass(frozen=True)
class Sharded:
    """Weights that ZeRO-3 shards, of a layer or of a stage, one value per layout."""

    elements: Array  # before they are sharded
    each: float  # bytes of one as kernels read it
    ranks: Array  # over which they are sharded


@dataclass(frozen=True)
class Shard:
    """A rank's shard of a layer's weights, in every layout that keeps them off the GPU."""

    layout: Columns
    machine: Any
    bytes: Array


class Codes(NamedTuple):
    """Quantised codes sent in place of values: bytes per value, and passes that encode and
    decode."""

    bytes: float
    times: int


class Replayed(NamedTuple):
    """Operators that are captured, and replayed by the GPU."""

    iteration: bool = False  # all of a step
    parts: tuple[str, ...] = ()  # of a layer: layer, attn, mamba, mlp
    routing: float = 0.0  # operators of a layer's routing of experts


class Divergence(NamedTuple):
    """Divergence between two distributions over the vocabulary: bytes per logit of one of them.

    kept: from forward to backward, without the logits of either; turn: what comes on top at the
    fullest moment; moved: read and written by all operators, both ways; hard: cross-entropy with
    the labels is a part of the loss.
    """

    title: str
    kept: float
    turn: float
    moved: float
    hard: bool
    source: str


class SecondModel(NamedTuple):
    """A frozen model beside the one that is trained, of forward passes, with whose distributions
    over the vocabulary the loss compares.

    place: on the GPUs of the step, on others that it waits for, or before the run.
    """

    plan: Any  # specs.plan.Plan on the GPUs of the step; None: the model is not known
    place: Literal["here", "apart", "before"]
    gpus: int | None  # on which it computes apart
    option: str  # that says on how many it computes
    words: int | None  # per token that are compared; None: all of the vocabulary
    divergence: Divergence


class DispatchOverlap(NamedTuple):
    """Compute beside which tokens are sent to their experts and back; None: as the stack has it."""

    another: bool | None = None  # of another micro-batch
    shared: bool | None = None  # of shared experts
    multiprocessors: int | None = None  # that dispatch works on


@dataclass(frozen=True)
class TrainedLayers:
    """Whole layers that are trained while the weights of the others are frozen."""

    count: int  # at a time
    random: (
        bool  # drawn again now and then, with embedding, final norm and head; else the last ones
    )
    kept_moments: bool = False  # of layers that were trained before
    frozen: frozenset[str] = frozenset()  # parts of these layers that are frozen, by name
    words: bool = False  # whether the embedding is trained where layers are not random
    head: bool = True  # whether an untied head is

    def check(self, flag: str, model: Any) -> None:
        """Raises PlanError where a model has fewer layers. flag: the option that sets them."""
        if self.count > model.layers:
            remedy = f"{model.name} has {model.layers} layers; take fewer"
            raise PlanError(flag, self.count, remedy)


@dataclass(frozen=True)
class Bytes:
    """Memory that a mechanism adds to a stage on a rank: by leaf in every phase, and off the
    GPU."""

    leaves: Ledger = field(default_factory=dict)
    host: Array = 0.0
    drive: Array = 0.0  # on NVMe drives


class Mechanism:
    """Base of mechanisms: nothing is added. A subclass is a frozen dataclass of settings."""

    NAME: ClassVar[str]
    OFF: ClassVar[str]  # what holds without it, for ablations
    SOURCE: ClassVar[str]
    OPTIONS: ClassVar[type[Any] | None] = None  # a record of options
    EXAMPLE: ClassVar[Mapping[str, Any]] = {}  # options beside which the examples of its own act
    HARDWARE: ClassVar[tuple[str, ...]] = ()  # options of the cluster, in no launch file
    GPUS: ClassVar[tuple[str, ...]] = ()  # options that count GPUs besides the step's
    NEEDS: ClassVar[tuple[Needed, ...]] = ()
    # its arguments in launch files: a format -> a name there -> the option with the same values
    ARGUMENTS: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    ACTS: ClassVar[Acts | None] = None  # None: in every layout
    # of a mechanism that layouts switch on: what they offload. Its hooks are asked wherever one
    # does, their results counted only there; `of` gives None
    OFFLOADS: ClassVar[tuple[OffloadName, ...]] = ()
    # leaves that it adds: of memory, with their descriptions, and which are allocated once;
    # of the step, with their bottleneck and descriptions
    MEMORY: ClassVar[Mapping[str, str]] = {}
    LASTING: ClassVar[tuple[str, ...]] = ()
    STEP: ClassVar[Mapping[str, tuple[str, str]]] = {}
    ADDS: ClassVar[tuple[str, ...]] = ()  # components of the step that are there without it
    BOTTLENECKS: ClassVar[Mapping[str, str]] = {}  # of its own, see specs.components

    @classmethod
    def of(cls, options: Any) -> Self | None:
        """The settings of a request; None where the mechanism is off."""
        raise NotImplementedError

    def resolved(
        self, trained: Any, read: Callable[[str], tuple[Any, list[str]]]
    ) -> tuple[Self, list[str]]:
        """With the models that its options name, and sentences about them. trained: the model of
        the request; read: a model by its name, and what was inferred. Raises PlanError."""
        return self, []

    @classmethod
    def switched_off(cls, plan: Any) -> Any:
        """A plan that has lost it, without what else of the request switches it on."""
        return plan

    def settings(self) -> dict[str, Any]:
        """Its settings, for documents."""
        names = (each.name for each in fields(self))  # type: ignore[arg-type]
        return {name: getattr(self, name) for name in names}

    @classmethod
    def implied(cls, plan: Any) -> bool:
        """Whether a plan has it without an option; `of` then gives None."""
        return False

    @classmethod
    def rules(cls) -> tuple[Any, ...]:
        """Rules that layouts have to meet while it is on: of formulas.rules."""
        return ()

    @classmethod
    def defines(cls, hook: str) -> bool:
        """Whether a subclass defines a hook."""
        return getattr(cls, hook) is not getattr(Mechanism, hook)

    # settings, the same for all layouts

    def coded(self, kind: Literal["weights", "gradients"]) -> Codes | None:
        """How what shards gather and reduce is quantised; None: not at all."""
        return None

    def kept_load(self) -> float | None:
        """Expert load that saved activations have room for, relative to a rank's mean; None: the
        fullest rank, or the capacity."""
        return None

    def activated_bytes(self) -> float | None:
        """Bytes of an element that an activation function of an MLP reads, as it is kept for
        backward; None: as without it."""
        return None

    def dispatch_overlap(self) -> DispatchOverlap:
        """Compute beside which tokens are sent to their experts and back."""
        return DispatchOverlap()

    def trained_layers(self) -> TrainedLayers | None:
        """Layers that are trained while others are frozen; None: it freezes none."""
        return None

    def check(self, plan: Any) -> None:
        """Raises PlanError where a plan cannot have it, by its model, cluster or training."""

    def second_model(self, plan: Any) -> SecondModel | None:
        """A model that it has beside the trained one; None: there is none."""
        return None

    def replayed(self) -> Replayed | None:
        """Operators that the CPU does not issue; None: as the stack has it."""
        return None

    def numbers(self, plan: Any) -> Mapping[str, Sourced]:
        """Numbers of the machine (estimate.machine.Machine) that it sets."""
        return {}

    def gemm_streams(self) -> float | None:
        """Streams on which GEMMs run at once, each with a workspace; None: one."""
        return None

    def gradient_passes(self) -> float | None:
        """Passes of a step over gradients; None: as many as without it."""
        return None

    def transposes_again(self) -> bool:
        """Whether every backward pass transposes 8-bit weights again."""
        return False

    def offloaded(self, leaf: str, mixing: float) -> float:
        """Share of a leaf of a layer's activations that --offload activations moves; without it,
        all of it. mixing: share of the layer's parts that mix tokens."""
        raise NotImplementedError

    # of layouts: plain arrays in and out; asked only where a subclass defines them

    def memory(self, stage: Stage) -> Bytes:
        """Memory that it adds to a stage: leaves of MEMORY in every phase, and bytes off the
        GPU."""
        raise NotImplementedError

    def gathered(self, stage: Sharded) -> Array:
        """Bytes of weights that lie gathered on a rank during the passes under ZeRO-3."""
        raise NotImplementedError

    def near(self, layer: Sharded) -> Array:
        """Ranks, neighbours of each other, from which the backward pass gathers a layer; without
        it, from all ranks that shard the layer."""
        raise NotImplementedError

    def freed(self, gradients: Gradients) -> Alive:
        """Live gradients and temporaries where gradients do not outlive the update of their
        weight."""
        raise NotImplementedError

    def evicted(self, room: Room) -> Array:
        """Bytes of the optimizer's states that lie in host memory between updates."""
        raise NotImplementedError

    def brought(self, shard: Shard) -> Array:
        """Seconds to bring a shard to host memory, overlapped with another shard's way to the
        GPU."""
        raise NotImplementedError

    def beside_cpu_update(self, running: Running) -> Array:
        """Seconds behind which an update on the CPU hides; without it, none."""
        raise NotImplementedError

    def after_update(self, step: Step) -> Ledger:
        """Seconds after the update of the weights that nothing hides: leaves of STEP and ADDS."""
        raise NotImplementedError
