"""Free options of stacks that a command has settled already.

A command that asks for many plans (advice, sweeps, kinds of clusters) settles the free options of a
stack once for each kind of layout. A later search of the same stack, model, GPU and training takes
them, searches all layouts with them, and settles options again only if its best layout is of a kind
that was not seen, or does not fit with enough room.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from planner.estimate import Outline
from planner.search.choose import choice
from planner.specs.plan import Plan, SoftwareChoice

Choices = tuple[SoftwareChoice, ...]
Kind = tuple[bool, ...]
Memory = dict[Hashable, dict[Kind, Choices]]

_ZERO_3 = 3
_open: ContextVar[Memory | None] = ContextVar("settled options", default=None)

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def settling(memory: Memory | None = None) -> Iterator[Memory]:
    """Inside the block, searches share what they settle; an inner block shares the outer one's,
    unless it is given a memory of its own."""
    outer = _open.get()
    shared = memory if memory is not None else outer if outer is not None else {}
    token = _open.set(shared)
    try:
        yield shared
    finally:
        _open.reset(token)


def settles(function: Callable[P, R]) -> Callable[P, R]:
    """A verb whose searches share what they settle."""

    @wraps(function)
    def shared(*args: P.args, **kwargs: P.kwargs) -> R:
        with settling():
            return function(*args, **kwargs)

    return shared


def snapshot() -> Memory:
    """What is settled so far, as a memory of its own."""
    return {key: dict(kinds) for key, kinds in (_open.get() or {}).items()}


def note(memory: Memory) -> None:
    """Add what another process has settled; what was known stays."""
    for key, kinds in memory.items():
        known(key).update({**kinds, **known(key)})


def known(key: Hashable) -> dict[Kind, Choices]:
    """Choices by kind of layout; outside of a block nothing is kept."""
    memory = _open.get()
    return {} if memory is None else memory.setdefault(key, {})


def key_of(plan: Plan) -> Hashable:
    """What the best free options depend on, besides the kind of layout. GPUs, links, batch and
    length of sequences decide the kind of layout rather than the options for it."""
    training = plan.training.model_dump(exclude={"global_batch", "seq_len", "tokens"})
    free = tuple((one.option, repr(one.value)) for one in plan.free)
    named = (plan.stack.id, plan.model.name, plan.cluster.gpu.id)
    return (*named, repr(training), repr(plan.mechanisms), free)


def kind_of(found: Outline) -> Kind:
    """The kind of the best layout."""
    best = found.rows(np.array([choice(found).row])).layout(0)
    degrees = (best.tp, best.pp, best.cp, best.ep)
    kept = (best.recompute == "none", best.offload == "none")
    return (*(degree > 1 for degree in degrees), best.zero >= _ZERO_3, *kept)
