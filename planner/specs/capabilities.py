"""Capabilities of stacks: each option that a stack may lack, declared once.

An entry says which words of the option there are, which of them a value uses, and which a stack
has by its file in planner/stacks. Search, rules, refusals, advice, readers of runs and the page ask
here, by `values` and `has`, and nothing else reads `[supports]`. What the files of a program can
say of a layout is stated by its target: `Target.where` in planner/formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from planner.specs.mechanism import Needed
from planner.specs.names import (
    ATTENTIONS,
    CONTEXT_WAYS,
    OFFLOADS,
    PLACEMENTS,
    RECOMPUTE_KINDS,
    SCHEDULES,
    DispatcherName,
    GradientSync,
    LossKernel,
    TaskName,
    recompute_parts,
)
from planner.specs.options import MECHANISMS, flag
from planner.specs.precision import RECIPES
from planner.specs.quantised import EIGHT_BIT
from planner.specs.stack import StackSpec

Request = Mapping[str, Any]  # values of options, or the fields of a layout, by name
_NOT_TORCH = ("jax", "native")  # families whose memory another allocator manages
_ON = ("on",)  # of an option that a stack has or has not
_ZERO = (0, 1, 2, 3)


@dataclass(frozen=True)
class Capability:
    """An option that a stack may lack.

    has: the words that a stack has, its default first; uses: those that a value needs; applies:
    whether it acts beside the rest of a request; listed: a refusal lists what the stack has;
    on_request: words that it has besides, which no search tries by itself; name: of an entry that
    is not the first of its option.
    """

    option: str
    title: str
    words: tuple[Any, ...]
    has: Callable[[StackSpec], Sequence[Any]]
    uses: Callable[[Any], Iterable[Any]]
    applies: Callable[[Request], bool] = lambda request: True
    says: str = "it has"
    listed: bool = False
    on_request: Callable[[StackSpec], Sequence[Any]] = lambda stack: ()
    name: str = ""

    def all_of(self, stack: StackSpec) -> tuple[Any, ...]:
        """Words that a stack supports, including those on request only."""
        return (*self.has(stack), *self.on_request(stack))

    def missing(self, stack: StackSpec, value: Any) -> list[Any]:
        """Words that a value needs and the stack does not have."""
        has = self.all_of(stack)
        return [word for word in self.uses(value) if word not in has]


@dataclass(frozen=True)
class Lack:
    """A value that a stack cannot run."""

    capability: Capability
    value: Any
    stack: StackSpec

    @property
    def flag(self) -> str:
        """The option as it is typed."""
        return flag(self.capability.option)

    @property
    def typed(self) -> str:
        """The option and its value as they are typed."""
        return self.flag if self.value is True else f"{self.flag} {self.value}"

    def __str__(self) -> str:
        """The option as typed, and the stack's alternatives: "--zero 3 (it has 0, 1)"."""
        entry = self.capability
        has = ", ".join(map(str, entry.all_of(self.stack))) or "none"
        return f"{self.typed} ({f'{entry.says} {has}' if entry.listed else entry.title})"


def _switch(option: str, title: str, has: Callable[[StackSpec], bool], **more: Any) -> Capability:
    """An option that is on or off: True, a degree above 1, a size."""
    return _graded(option, title, _ON, lambda stack: _ON if has(stack) else (), **more)


def _degree(option: str, title: str, has: Callable[[StackSpec], bool]) -> Capability:
    """A degree of parallelism; a stack may run it only on request."""

    def on_request(stack: StackSpec) -> Sequence[str]:
        return _ON if option in stack.supports.parallel_on_request else ()

    return _switch(option, title, has, on_request=on_request)


def _graded(
    option: str,
    title: str,
    words: Sequence[Any],
    has: Callable[[StackSpec], Sequence[Any]],
    **more: Any,
) -> Capability:
    """An option that is on or off, and more or less widely: its first word is the least."""

    def uses(value: Any) -> Sequence[Any]:
        degree = isinstance(value, int) and not isinstance(value, bool)
        return words[:1] if (value > 1 if degree else bool(value)) else ()

    return Capability(option, title, tuple(words), has, **{"uses": uses, **more})


def _listed(
    option: str,
    title: str,
    words: Sequence[Any],
    has: Callable[[StackSpec], Sequence[Any]],
    **more: Any,
) -> Capability:
    """An option whose value is words of a list, joined by + where there are several."""

    def uses(value: Any) -> list[Any]:
        given = [value] if value in words else str(value).split("+")
        return [word for word in given if word in words and word != "none"]

    return Capability(option, title, tuple(words), has, **{"uses": uses, "listed": True, **more})


def _beside(
    name: str,
    option: str,
    title: str,
    words: Sequence[Any],
    has: Callable[[StackSpec], Sequence[Any]],
) -> Capability:
    """A refinement of an option that the stack has, queried by rules and estimates; no value of the
    option needs it."""
    return Capability(option, title, tuple(words), has, lambda value: (), name=name)


def _recompute_kinds(value: str) -> tuple[str, ...]:
    kind = RECOMPUTE_KINDS[recompute_parts(value)[0]]
    return () if kind == "none" else (kind,)


def _quantised_base(value: str) -> tuple[str, ...]:
    return () if value in EIGHT_BIT else _ON


def _piped(request: Request) -> bool:
    return (request.get("pp") or 1) > 1


def _stages(request: Request) -> bool:
    return request.get("pp") != 1 and request.get("gpus") != 1


def _sharded_partly(request: Request) -> bool:
    dp, cp = request.get("dp"), request.get("cp") or 1
    return dp is not None and (request.get("shard_group") or 0) < dp * cp


def _hybrid_stages(stack: StackSpec) -> tuple[int, ...]:
    """ZeRO-2 too where it is FSDP that keeps gathered weights (reshard_after_forward: never)."""
    least = 2 if stack.state.zero2_gathers else stack.supports.hybrid_zero
    return _ZERO[least:] if stack.supports.hybrid_shard else ()


def _recipes(stack: StackSpec) -> tuple[str, ...]:
    recipes = stack.precision.recipes
    return ("fp8", *recipes) if recipes else ()


def _widths(least: str, widest: str, stated: str) -> tuple[str, ...]:
    """The supported ones of two words, the second of which includes the first."""
    return {least: (least,), widest: (least, widest)}.get(stated, ())


def _of_mechanism(needed: Needed) -> Capability:
    has: Callable[[StackSpec], Any] = needed.has or (
        lambda stack: needed.option in stack.supports.mechanisms
    )
    if needed.graded:
        return _graded(needed.option, needed.title, needed.words, has)
    if needed.words:
        return _listed(needed.option, needed.title, needed.words, has)
    return _switch(needed.option, needed.title, has)


CAPABILITIES: tuple[Capability, ...] = (
    _degree("tp", "tensor parallelism", lambda s: s.supports.tensor),
    _degree("pp", "pipeline parallelism", lambda s: s.supports.pipeline),
    _degree("cp", "context parallelism", lambda s: s.supports.context),
    _degree("ep", "expert parallelism", lambda s: s.supports.expert),
    _degree("etp", "split experts", lambda s: s.supports.expert and s.supports.tensor),
    _switch("sequence_parallel", "sequence parallelism", lambda s: s.supports.sequence_parallel),
    _beside(
        "tensor_alone",
        "tp",
        "tensor parallelism without sequence parallelism",
        _ON,
        lambda s: _ON if s.supports.tensor_alone else (),
    ),
    _beside(
        "replicas_beside",
        "dp",
        "replicas of whole weights beside other degrees",
        _ON,
        lambda s: _ON if s.supports.replicas_beside else (),
    ),
    _beside(
        "context_zero",
        "cp",
        "ZeRO stages beside context parallelism",
        _ZERO,
        lambda s: _ZERO[s.supports.context_zero :],
    ),
    _beside(
        "expert_zero",
        "ep",
        "ZeRO stages beside expert parallelism",
        _ZERO,
        lambda s: _ZERO[s.supports.expert_zero :],
    ),
    _listed("schedule", "schedules", SCHEDULES, lambda s: s.supports.schedules, applies=_stages),
    _graded(
        "pipeline_layout",
        "chunks that differ in layers",
        ("one chunk", "any"),
        lambda s: _widths("one chunk", "any", s.supports.uneven),
    ),
    _listed(
        "zero",
        "ZeRO stages",
        _ZERO,
        lambda s: s.supports.zero,
        on_request=lambda s: s.supports.zero_on_request,
    ),
    _listed(
        "zero",
        "ZeRO stages with a pipeline",
        _ZERO,
        lambda s: sorted({*s.supports.zero} & {*s.supports.zero_with_pipeline}),
        applies=_piped,
        says="with a pipeline it has",
        name="zero_with_pipeline",
    ),
    _switch(
        "shard_group", "hybrid sharding", lambda s: s.supports.hybrid_shard, applies=_sharded_partly
    ),
    _beside("hybrid_zero", "shard_group", "ZeRO stages of hybrid sharding", _ZERO, _hybrid_stages),
    _switch("sub_group_size", "sub-groups of ZeRO-3", lambda s: s.state.zero3_turn is not None),
    _listed(
        "recompute",
        "kinds of recomputation",
        RECOMPUTE_KINDS,
        lambda s: s.supports.recompute,
        uses=_recompute_kinds,
        on_request=lambda s: s.supports.recompute_on_request,
    ),
    _listed("offload", "offloading", OFFLOADS, lambda s: s.supports.offload),
    _beside(
        "offload_with_recompute",
        "offload",
        "offloading of what recomputation keeps",
        ("activations",),
        lambda s: ("activations",) if s.supports.offload_with_recompute else (),
    ),
    _listed(
        "cp_comm_type",
        "ways to share a sequence",
        CONTEXT_WAYS,
        lambda s: s.supports.context_ways if has(s, "cp") else (),
        applies=lambda request: request.get("cp") != 1,
    ),
    _listed("placement", "orders of ranks", PLACEMENTS, lambda s: s.supports.placements),
    _listed(
        "dispatcher",
        "token dispatchers",
        get_args(DispatcherName),
        lambda s: s.supports.dispatchers if has(s, "ep") else (),
        applies=lambda request: request.get("ep") != 1,
    ),
    _listed(
        "loss_kernel",
        "kernels of the loss",
        get_args(LossKernel),
        lambda s: s.supports.loss_kernels,
    ),
    _switch("loss_chunks", "a loss in chunks", lambda s: "chunked" in s.supports.loss_kernels),
    _listed("task", "objectives", get_args(TaskName), lambda s: s.supports.tasks),
    _listed("attention", "kernels of attention", ATTENTIONS, lambda s: s.supports.attentions),
    _switch("compile", "torch.compile", lambda s: s.supports.compile),
    _switch("expandable_segments", "PyTorch's allocator", lambda s: s.family not in _NOT_TORCH),
    _listed(
        "gradient_sync",
        "times at which FSDP reduces",
        get_args(GradientSync),
        lambda s: get_args(GradientSync) if s.supports.gradient_sync else (),
    ),
    # the recipe that a stack calls fp8 first
    _listed("precision", "low-precision recipes", ("fp8", *RECIPES), _recipes),
    # narrow moments and gradients come with it
    _listed(
        "master_precision",
        "master copies as remainders",
        ("remainder",),
        lambda s: ("remainder",) if s.supports.precision_aware else (),
    ),
    _beside(
        "whole_matrices",
        "optimizer",
        "updates of matrices that ZeRO shards",
        ("dealt", "gathered"),
        lambda s: tuple({s.supports.sharded_matrices} - {"no"}),
    ),
    _beside(
        "sharded_rows",
        "optimizer",
        "shards that are rows of tensors, not pieces of flat buffers",
        _ON,
        lambda s: () if s.supports.flat_shards else _ON,
    ),
    _switch("lora", "adapters", lambda s: s.supports.adapters),
    _switch(
        "base_precision",
        "weights in quantised formats",
        lambda s: s.supports.quantised_base,
        uses=_quantised_base,
    ),
    _switch(
        "base_precision",
        "weights in quantised formats on several GPUs",
        lambda s: s.supports.quantised_base and s.supports.quantised_base_sharded,
        uses=_quantised_base,
        applies=lambda request: request.get("gpus") != 1,
        name="base_precision_sharded",
    ),
    *(_of_mechanism(needed) for each in MECHANISMS for needed in each.NEEDS),
)
_BY_NAME = {entry.name or entry.option: entry for entry in CAPABILITIES}


def values(stack: StackSpec, name: str, *, on_request: bool = False) -> tuple[Any, ...]:
    """The words that a stack has of an entry, its default first; on_request: those too that no
    search tries by itself."""
    entry = _BY_NAME[name]
    return entry.all_of(stack) if on_request else tuple(entry.has(stack))


def has(stack: StackSpec, name: str, word: Any = None) -> bool:
    """Whether a stack has a word of an entry, or any where none is given."""
    had = values(stack, name, on_request=True)
    return bool(had) if word is None else word in had


def lacks(stack: StackSpec, request: Request) -> list[Lack]:
    """Options of a request that the stack cannot run, each once."""
    lacking: dict[str, Lack] = {}
    for entry in CAPABILITIES:
        value = request.get(entry.option)
        if value is not None and entry.applies(request) and entry.missing(stack, value):
            lacking.setdefault(entry.option, Lack(entry, value, stack))
    return list(lacking.values())
