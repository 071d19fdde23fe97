"""Accounts beside the components of a step: every kind of communication, its hidden part, and the
operators by name."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planner.estimate.communicate import Collective, Traffic
from planner.estimate.layer import ModelCost
from planner.estimate.layer.rows import LayerTime
from planner.estimate.memory import offload
from planner.ledger import Array, Ledger, merge, scale, under


@dataclass(frozen=True)
class Accounts:
    """Empty for factored tables: a search needs sums only."""

    traffic: tuple[Traffic, ...] = ()
    hidden: Ledger = field(default_factory=dict)
    detail: Ledger = field(default_factory=dict)


@dataclass(frozen=True)
class Passes:
    """Passes of the slowest stage in a step."""

    kinds: Sequence[Array]  # layers of every kind, times micro-batches
    heads: Array
    modules: Array  # of multi-token prediction

    @property
    def layers(self) -> Array:
        return functools.reduce(np.add, self.kinds)


def accounts(
    cost: ModelCost,
    layer: LayerTime,
    passes: Passes,
    others: Sequence[Traffic],
    copied: offload.Copies | None,
) -> Accounts:
    """The accounts of a step.

    layer: what recompute repeats of a mean layer; others: what data parallelism and the pipeline
    send.
    """
    kinds = list(zip(passes.kinds, cost.kinds, strict=True))
    again = {"expert_parallel": layer.exchanged}
    of_layers = [
        _of_layer(x, n, again.get(x.component, layer.repeated))
        for n, unit in kinds
        for x in unit.collectives
    ]
    once = 0.0 * passes.heads
    traffic = [
        *_added_up(of_layers),
        *(_of_layer(x, passes.heads, once) for x in cost.ends),
        *(_of_layer(x, passes.modules, once) for x in cost.module_ends),
        *others,
    ]
    if copied is not None:
        traffic.append(_copies(copied, passes.layers))
    hidden: Ledger = {}
    for kind in traffic:
        hidden[kind.component] = hidden.get(kind.component, 0.0) + kind.seconds - kind.exposed
    detail = merge(
        *(
            {f"layer/{name}": n * (leaf + unit.backward[name])}
            for n, unit in kinds
            for name, leaf in unit.forward.items()
        ),
        under("head", scale(cost.head, passes.heads)),
        under("module", scale(cost.module, passes.modules)),
    )
    return Accounts(tuple(traffic), hidden, detail)


def _added_up(traffic: Sequence[Traffic]) -> list[Traffic]:
    """Calls of one kind over the kinds of layers."""
    out: dict[tuple[str, str, str], Traffic] = {}
    for entry in traffic:
        key = entry.operation, entry.group, entry.what
        out[key] = _sum(out[key], entry) if key in out else entry
    return list(out.values())


def _sum(a: Traffic, b: Traffic) -> Traffic:
    """bytes: of a mean call."""
    count = a.count + b.count
    share = np.where(count > 0, b.count / np.where(count > 0, count, 1.0), 0.0)
    return replace(
        a,
        bytes=a.bytes + share * (b.bytes - a.bytes),
        count=count,
        seconds=a.seconds + b.seconds,
        exposed=a.exposed + b.exposed,
    )


def _of_layer(x: Collective, passes: Array, repeated: Array) -> Traffic:
    """A layer's collective over the whole step; recompute repeats the forward calls."""
    exposed = x.forward + x.backward + repeated * x.forward
    calls = exposed + x.hidden_backward
    return Traffic(
        operation=x.operation,
        group=x.group,
        what=x.what,
        component=x.component,
        bytes=x.tensor_bytes,
        count=passes * calls,
        seconds=passes * calls * x.seconds,
        exposed=passes * exposed * x.seconds,
        across_nodes=(x.placed.nodes > 1) * 1.0,
    )


def _copies(copied: offload.Copies, passes: Array) -> Traffic:
    """Activations to host memory and back."""
    count = np.where(copied.bytes > 0, 2 * passes, 0.0)
    return Traffic(
        operation="copy",
        group="host",
        what="activations of a layer, out or back",
        component="offload",
        bytes=copied.bytes,
        count=count,
        seconds=count * copied.seconds,
        exposed=passes * (copied.forward + copied.backward),
        across_nodes=0.0 * passes,
    )
