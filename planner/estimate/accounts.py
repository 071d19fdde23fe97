"""What a report lists beside the components of a step: every kind of communication, what of it is
hidden, and the operators by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.estimate.communicate import Traffic
from planner.estimate.layer import Collective, LayerCost
from planner.estimate.memory import offload
from planner.ledger import Array, Ledger


@dataclass(frozen=True)
class Accounts:
    """Empty for factored tables: a search needs sums only."""

    traffic: tuple[Traffic, ...] = ()
    hidden: Ledger = field(default_factory=dict)
    detail: Ledger = field(default_factory=dict)


def accounts(
    unit: LayerCost,
    repeated: Array,
    passes: Array,
    heads: Array,
    others: Sequence[Traffic],
    copied: offload.Copies | None,
) -> Accounts:
    """The accounts of a step.

    repeated: share of a layer's forward that recompute repeats; passes: layers times micro-batches
    of the slowest stage; heads: micro-batches whose head it computes; others: what data parallelism
    and the pipeline send.
    """
    found = [
        *(_of_layer(x, passes, repeated) for x in unit.collectives),
        *(_of_layer(x, heads, 0.0 * heads) for x in unit.ends),
        *others,
    ]
    if copied is not None:
        found.append(_copies(copied, passes))
    hidden: Ledger = {}
    for kind in found:
        hidden[kind.component] = hidden.get(kind.component, 0.0) + kind.seconds - kind.exposed
    detail = {
        f"layer/{name}": passes * (unit.forward[name] + unit.backward[name])
        for name in unit.forward
    }
    detail |= {f"head/{name}": heads * leaf for name, leaf in unit.head.items()}
    return Accounts(tuple(found), hidden, detail)


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
