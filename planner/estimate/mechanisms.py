"""The walk over the active mechanisms of a plan, and the boundary to their hooks: columns of the
estimate become plain arrays on the way in, and plain arrays columns on the way out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from planner.formulas.rules.stack import ACTS
from planner.ledger import Array, Ledger, merge, plug_in, total
from planner.specs.columns import Columns
from planner.specs.mechanism import (
    Alive,
    Bytes,
    DispatchOverlap,
    Gradients,
    Mechanism,
    Room,
    Running,
    Shard,
    Sharded,
    Stage,
    Step,
    Updated,
)
from planner.specs.options import MECHANISMS
from planner.specs.plan import Plan

_HOST, _DRIVE, _VALUE = "host memory", "drives", "value"  # names of results that are not leaves


_IMPLIED = tuple(each for each in MECHANISMS if "implied" in vars(each))
_OF_LAYOUTS = tuple(each for each in MECHANISMS if each.OFFLOADS)


def _defining(plan: Plan, c: Columns, hook: str) -> list[Mechanism]:
    """Active mechanisms that define a hook; implied ones and ones of layouts first."""
    on = [each() for each in _IMPLIED if each.defines(hook) and each.implied(plan)]
    by_layouts = (each for each in _OF_LAYOUTS if each.defines(hook))
    on += [each() for each in by_layouts if np.any(c.offloads(*each.OFFLOADS))]
    return [*on, *plan.defining(hook)]


def defined(plan: Plan, c: Columns, hook: str) -> bool:
    """Whether a mechanism that is on defines a hook."""
    return bool(_defining(plan, c, hook))


def _ask(
    mechanism: Mechanism,
    c: Columns,
    hook: str,
    record: Any,
    names: Sequence[str],
    read: Callable[[Any], Mapping[str, Array]],
) -> Ledger:
    """Results of a hook, by name. read: ledger of what the hook returns."""
    ask = getattr(mechanism, hook)
    where = f"{hook} of the mechanism {mechanism.NAME}"
    results = plug_in(where, lambda plain: read(ask(plain)), record, names)
    if not mechanism.OFFLOADS:
        return results
    on = c.offloads(*mechanism.OFFLOADS)
    return {name: np.where(on, leaf, 0.0) for name, leaf in results.items()}


def _single(value: Array) -> Ledger:
    return {_VALUE: value}


def _values(plan: Plan, c: Columns, hook: str, record: Callable[[], Any]) -> Iterator[Array]:
    """Results of hooks with a single result."""
    for each in _defining(plan, c, hook):
        yield _ask(each, c, hook, record(), (_VALUE,), _single)[_VALUE]


def with_memory(
    plan: Plan, c: Columns, phases: list[Ledger], host: Array, stage: Callable[[], Stage]
) -> tuple[list[Ledger], Array, Array]:
    """Ledgers of the phases of a stage, its bytes in host memory and on drives, with the
    contribution of each mechanism."""
    drive: Array = 0.0 * host
    for mechanism in _defining(plan, c, "memory"):
        added = _ask(mechanism, c, "memory", stage(), (*mechanism.MEMORY, _HOST, _DRIVE), _by_name)
        host = host + added.pop(_HOST, 0.0)
        drive = drive + added.pop(_DRIVE, 0.0)
        phases = [merge(phase, added) for phase in phases]
    return phases, host, drive


def _by_name(sizes: Bytes) -> Ledger:
    return {**sizes.leaves, _HOST: sizes.host, _DRIVE: sizes.drive}


def gathered(plan: Plan, c: Columns, stage: Callable[[], Sharded]) -> Array | None:
    """Bytes of weights that lie gathered on a rank beside those that a pass gathers; None: none."""
    every = [*_values(plan, c, "gathered", stage)]
    return sum(every) if every else None


def near(plan: Plan, c: Columns, layer: Callable[[], Sharded]) -> Array | None:
    """Ranks near by from which backward gathers a layer; None: from all that shard it."""
    return next(_values(plan, c, "near", layer), None)


def brought(plan: Plan, c: Columns, copied: Array, shard: Callable[[], Shard]) -> Array:
    """Seconds in which a rank's shard of a layer reaches the GPU. copied: from host memory."""
    return functools.reduce(np.maximum, _values(plan, c, "brought", shard), copied)


def evicted(plan: Plan, c: Columns, room: Callable[[], Room]) -> Array | None:
    """Bytes of the optimizer's states that leave a full GPU; None: none ever does."""
    return next(_values(plan, c, "evicted", room), None)


def transposes_again(plan: Plan) -> bool:
    """Whether 8-bit weights are kept in one layout, and the other is made of it in backward."""
    recipe = plan.recipe
    turned = recipe is not None and recipe.transposes(plan.cluster.gpu.architecture)
    return turned and any(mechanism.transposes_again() for mechanism in plan.mechanisms)


def gemm_streams(plan: Plan, c: Columns) -> Array:
    """Streams on which GEMMs run at once: one, or as many as a mechanism has where it acts."""
    streams: Array = 1.0
    for mechanism in plan.mechanisms:
        if (count := mechanism.gemm_streams()) is not None:
            acting = [ACTS[name](c) for name in (mechanism.ACTS.options if mechanism.ACTS else ())]
            streams = np.where(functools.reduce(np.logical_or, acting, not acting), count, streams)
    return streams


def dispatch_overlap(plan: Plan) -> DispatchOverlap:
    """Compute beside which tokens are sent to their experts and back."""
    stated = [mechanism.dispatch_overlap() for mechanism in plan.mechanisms]
    return DispatchOverlap(
        *(
            next((value for value in values if value is not None), None)
            for values in zip(DispatchOverlap(), *stated, strict=True)
        )
    )


def offloaded(plan: Plan) -> Callable[[str, float], float] | None:
    """Share of a leaf of activations that --offload activations moves, see Mechanism.offloaded;
    None: all of every leaf."""
    stated = plan.defining("offloaded")
    return stated[0].offloaded if stated else None


def freed(
    plan: Plan, c: Columns, phases: list[Ledger], gradients: Callable[[], Gradients]
) -> list[Ledger] | None:
    """Phases of a stage whose gradients are freed when they have been used; None: they are not."""
    for mechanism in _defining(plan, c, "freed"):
        alive = _ask(mechanism, c, "freed", gradients(), _MOMENTS, _by_moment)
        return _without_gradients(phases, *(_moment(alive, name) for name in Alive._fields))
    return None


_MOMENTS = tuple(f"{moment}/{leaf}" for moment in Alive._fields for leaf in Updated._fields)


def _by_moment(alive: Alive) -> Ledger:
    return dict(zip(_MOMENTS, (leaf for moment in alive for leaf in moment), strict=True))


def _moment(leaves: Ledger, name: str) -> Updated:
    return Updated(*(leaves[f"{name}/{leaf}"] for leaf in Updated._fields))


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


def beside_cpu_update(plan: Plan, c: Columns, backward: Array, components: Ledger) -> Array:
    """Seconds behind which an update on the CPU hides. backward: of one micro-batch; components: of
    the step before the update."""
    running = functools.partial(Running, backward)
    return sum(_values(plan, c, "beside_cpu_update", lambda: running(total(components))))


def after_update(plan: Plan, c: Columns, step: Callable[[Ledger], Step]) -> Ledger:
    """Seconds that each mechanism adds after the update of the weights. step: step time including
    mechanisms already applied."""
    added: Ledger = {}
    for each in _defining(plan, c, "after_update"):
        more = _ask(each, c, "after_update", step(added), (*each.STEP, *each.ADDS), dict)
        added = merge(added, more)
    return added
