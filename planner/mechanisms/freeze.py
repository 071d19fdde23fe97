"""Blocks of a model are frozen by name: a tower of images, a language model beside the projector
that is trained. A frozen weight has no gradient and no optimizer state; gradients pass through it
where something below is trained, else it has no backward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from planner.error import PlanError
from planner.specs.mechanism import Mechanism, TrainedLayers
from planner.specs.options.adapters import AdapterOptions
from planner.specs.options.record import Record
from planner.specs.options.row import Needs, option
from planner.specs.options.verbs import METHODS, OF_FROZEN, PARTLY

if TYPE_CHECKING:
    from planner.formulas.rules.rule import Rule
    from planner.specs.layers import Kind
    from planner.specs.model import ModelSpec
    from planner.specs.parts import Part

WORDS, HEAD = "embedding", "head"


@dataclass(frozen=True, kw_only=True)
class FreezeOptions(Record):
    GROUP: ClassVar = AdapterOptions.GROUP
    VERBS: ClassVar = PARTLY - METHODS
    WHY_NOT: ClassVar = OF_FROZEN

    freeze: Annotated[
        str | None,
        option(
            "Freeze blocks by name, joined by +: names of parts or towers, or classes of traced"
            " blocks, with * for any letters; embedding and head. `dpplan list models NAME` shows"
            " them",
            label="Frozen blocks",
            example="embedding",
            unset="none",
            needs=Needs(
                lambda given: (
                    given.lora is None and given.trainable_layers is None and given.lisa is None
                ),
                "freezes parts of the model by itself: leave out this option, or --lora,"
                " --trainable-layers and --lisa",
            ),
            form="folded",
        ),
    ] = None


@dataclass(frozen=True)
class Freeze(Mechanism):
    """names: patterns; layers: what they leave to be trained, once the model is known."""

    names: tuple[str, ...]
    layers: TrainedLayers | None = None

    NAME = "freeze"
    OFF = "all blocks are trained"
    SOURCE = "requires_grad of torch; freeze_vision_tower of LLaMA-Factory"
    OPTIONS = FreezeOptions

    @classmethod
    def of(cls, options: FreezeOptions) -> Freeze | None:
        if options.freeze is None:
            return None
        return cls(tuple(name.strip() for name in options.freeze.split("+") if name.strip()))

    @classmethod
    def rules(cls) -> tuple[Rule, ...]:
        from planner.formulas.rules.rule import Rule

        return (
            Rule(
                "stages with a frozen block stay together",
                ("freeze",),
                lambda plan, c: c.pp == 1,
                lambda plan, x: (
                    "stages with frozen blocks have other backward passes than the others, which no"
                    f" schedule here knows; here pp is {x.pp}"
                ),
                ways=lambda plan, x: ("--pp 1", "leave out --freeze"),
            ),
        )

    def resolved(
        self, trained: ModelSpec, read: Callable[[str], tuple[ModelSpec, list[str]]]
    ) -> tuple[Freeze, list[str]]:
        return replace(self, layers=_layers(self.names, trained)), []

    def settings(self) -> dict[str, Any]:
        return {"names": self.names}

    def trained_layers(self) -> TrainedLayers | None:
        return self.layers


def _layers(patterns: tuple[str, ...], model: ModelSpec) -> TrainedLayers:
    """Layers that stay trained. Raises PlanError for a pattern that names nothing, and where all is
    frozen."""
    from planner.specs.layers import layers_of

    field, layers = "--freeze", layers_of(model)
    named = dict.fromkeys(patterns, 0)
    frozen: set[str] = set()
    for kind in layers.kinds:
        for part in kind.parts:
            for pattern in patterns:
                if any(fnmatchcase(name.lower(), pattern.lower()) for name in _names(kind, part)):
                    named[pattern] += 1
                    frozen.add(part.name)
    idle = [pattern for pattern, n in named.items() if not n and pattern not in (WORDS, HEAD)]
    if idle or not patterns:
        known = dict.fromkeys(
            name for kind in layers.kinds for part in kind.parts for name in _names(kind, part)
        )
        remedy = (
            f"no block of {model.name} is called so; known: {', '.join(known)}, {WORDS}, {HEAD}"
        )
        raise PlanError(field, "+".join(idle) or None, remedy)
    _check_alike(field, model, frozen)
    words = bool(model.vocab) and WORDS not in named
    head = HEAD not in named
    first = _first_trained(model, frozen, words)
    if first is None:
        raise PlanError(field, "+".join(patterns), f"all of {model.name} is frozen; name fewer")
    return TrainedLayers(
        model.layers - first, random=False, frozen=frozenset(frozen), words=words, head=head
    )


def _names(kind: Kind, part: Part) -> list[str]:
    """Names that a part of a kind of layer has."""
    from planner.specs.parts import Traced

    module = part.module if isinstance(part, Traced) else ""
    return [name for name in (part.name, module, kind.tower) if name]


def _check_alike(field: str, model: ModelSpec, frozen: set[str]) -> None:
    """Layers that are planned as one are frozen alike. Raises PlanError."""
    from planner.specs.layers import layers_of, memory_kinds

    known, layers = memory_kinds(model), layers_of(model)
    for at, layer in zip(known.order, layers.order, strict=True):
        pairs = zip(known.kinds[at].parts, layers.kinds[layer].parts, strict=True)
        for first, other in pairs:
            if (first.name in frozen) != (other.name in frozen):
                remedy = (
                    f"{first.name!r} and {other.name!r} are alike and planned as one; name both"
                )
                raise PlanError(field, first.name, remedy)


def _first_trained(model: ModelSpec, frozen: set[str], words: bool) -> int | None:
    """The first layer with a backward pass: with a trained part, or above a trained embedding.
    None: there is none."""
    from planner.specs.layers import layers_of

    layers = layers_of(model)
    for i, at in enumerate(layers.order):
        parts = layers.kinds[at].parts
        if any(part.name not in frozen for part in parts):
            return i
        if words and any(_reads_words(part) for part in parts):
            return i
    return None


def _reads_words(part: Part) -> bool:
    """Whether a part grows with the sequence: a traced block of images has the same size at any
    length."""
    from planner.specs.parts import Traced

    if not isinstance(part, Traced):
        return True
    return any(power for _, power, _ in part.enters.terms)


MECHANISM = Freeze
