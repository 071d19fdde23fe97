"""The walk over the active mechanisms of a plan, and the boundary to their hooks: columns of the
estimate become plain arrays on the way in, and plain arrays columns on the way out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from planner.ledger import Array, Ledger, merge, plug_in, total
from planner.specs.mechanism import (
    Alive,
    Bytes,
    Codes,
    Gradients,
    Mechanism,
    Running,
    Sharded,
    Stage,
    Step,
    Updated,
)
from planner.specs.plan import Plan

_HOST, _VALUE = "host memory", "value"  # names of results that are no leaves


def _defining(plan: Plan, hook: str) -> Iterator[Mechanism]:
    """Active mechanisms that define a hook."""
    base = getattr(Mechanism, hook)
    return (each for each in plan.mechanisms if getattr(type(each), hook) is not base)


def _ask(
    mechanism: Mechanism,
    hook: str,
    record: Any,
    names: Sequence[str],
    read: Callable[[Any], Mapping[str, Array]],
) -> Ledger:
    """What a hook returns, by name. read: its results of what it returns."""
    ask = getattr(mechanism, hook)
    where = f"{hook} of the mechanism {mechanism.NAME}"
    return plug_in(where, lambda plain: read(ask(plain)), record, names)


def _single(found: Array) -> Ledger:
    return {_VALUE: found}


def _value(mechanism: Mechanism, hook: str, record: Any) -> Array:
    """What a hook returns that has one result."""
    return _ask(mechanism, hook, record, (_VALUE,), _single)[_VALUE]


def with_memory(
    plan: Plan, phases: Sequence[Ledger], host: Array, stage: Callable[[], Stage]
) -> tuple[list[Ledger], Array]:
    """Ledgers of the phases of a stage and its bytes in host memory, with what each adds."""
    held = list(phases)
    for mechanism in _defining(plan, "memory"):
        added = _ask(mechanism, "memory", stage(), (*mechanism.MEMORY, _HOST), _by_name)
        host = host + added.pop(_HOST, 0.0)
        held = [merge(phase, added) for phase in held]
    return held, host


def _by_name(found: Bytes) -> Ledger:
    return {**found.leaves, _HOST: found.host}


def coded(plan: Plan, what: Literal["weights", "gradients"]) -> Codes | None:
    """How weights are gathered or gradients are reduced in codes; None: as they are."""
    every = (mechanism.coded(what) for mechanism in plan.mechanisms)
    return next((codes for codes in every if codes is not None), None)


def gathered(plan: Plan, stage: Callable[[], Sharded]) -> Array | None:
    """Bytes of weights that lie gathered on a rank beside those that a pass gathers; None: none."""
    every = [*_defining(plan, "gathered")]
    return sum(_value(each, "gathered", stage()) for each in every) if every else None


def near(plan: Plan, layer: Callable[[], Sharded]) -> Array | None:
    """Ranks near by from which backward gathers a layer; None: from all that shard it."""
    every = (_value(each, "near", layer()) for each in _defining(plan, "near"))
    return next(every, None)


def gradient_passes(plan: Plan, usual: float) -> float:
    """Passes of a step over gradients."""
    every = (mechanism.gradient_passes() for mechanism in plan.mechanisms)
    return next((passes for passes in every if passes is not None), usual)


def kept_load(plan: Plan) -> float | None:
    """Load of a rank's experts, in means, that what they keep has room for; None: as usual."""
    every = (mechanism.kept_load() for mechanism in plan.mechanisms)
    return next((load for load in every if load is not None), None)


def freed(plan: Plan, phases: list[Ledger], of: Callable[[], Gradients]) -> list[Ledger] | None:
    """Phases of a stage whose gradients are freed when they have been used; None: they are not."""
    for mechanism in _defining(plan, "freed"):
        found = _ask(mechanism, "freed", of(), _MOMENTS, _by_moment)
        return _without_gradients(phases, *(_moment(found, name) for name in Alive._fields))
    return None


_MOMENTS = tuple(f"{moment}/{leaf}" for moment in Alive._fields for leaf in Updated._fields)


def _by_moment(found: Alive) -> Ledger:
    return dict(zip(_MOMENTS, (leaf for moment in found for leaf in moment), strict=True))


def _moment(found: Ledger, name: str) -> Updated:
    return Updated(*(found[f"{name}/{leaf}"] for leaf in Updated._fields))


def _without_gradients(
    phases: list[Ledger], layer: Updated, head: Updated, embedding: Updated
) -> list[Ledger]:
    """The phases with gradients only while their weights are updated: the fullest moment of
    backward is in its layers, or at the head, before anything that the loss needs is freed."""
    load, forward, loss, backward, end, reduction, step = phases
    nothing = 0.0 * layer.gradients
    none = {"gradients": nothing, "optimizer_temporaries": nothing}

    def alive(moment: Updated) -> Ledger:
        return {"gradients": moment.gradients, "optimizer_temporaries": moment.temporaries}

    again = {**alive(layer), "backward_temporaries": backward["backward_temporaries"] - layer.given}
    inside, at_head = backward | again, forward | alive(head)
    fuller = total(at_head) > total(inside)
    return [
        load | none,
        forward | none,
        loss | none,
        {name: np.where(fuller, at_head[name], leaf) for name, leaf in inside.items()},
        end | again,
        reduction | alive(embedding),
        step | none,
    ]


def beside_cpu_update(plan: Plan, backward: Array, components: Ledger) -> Array:
    """Seconds behind which an update on the CPU hides. backward: of one micro-batch; components: of
    the step before the update."""
    every = [*_defining(plan, "beside_cpu_update")]
    if not every:
        return 0.0
    of = Running(backward, total(components))
    return sum(_value(each, "beside_cpu_update", of) for each in every)


def after_update(plan: Plan, step: Callable[[], Step]) -> Ledger:
    """Seconds that each adds once the weights are updated."""
    every = [*_defining(plan, "after_update")]
    return merge(*(_ask(each, "after_update", step(), tuple(each.STEP), dict) for each in every))
