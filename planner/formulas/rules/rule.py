"""A rule: a condition on the columns of layouts, and the sentence where it fails.

The nearest values that a sentence names are those that satisfy the same condition.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from planner.ledger import Array, plug_in
from planner.specs.columns import Columns
from planner.specs.layout import Layout
from planner.specs.mechanism import Mechanism
from planner.specs.options import flag
from planner.specs.plan import Plan

_DEGREES = ("tp", "pp", "cp")
_MOST_LISTED = 100_000  # values around the given one that are looked through for the nearest


@dataclass(frozen=True)
class Rule:
    """A condition that a layout has to meet.

    holds(plan, columns): True where a layout is allowed; said(plan, layout): why another is not;
    near: options whose nearest values that satisfy the condition are named; ways(plan, layout):
    other ways out; empty for none.
    """

    name: str
    options: tuple[str, ...]  # that a user would change
    holds: Callable[[Plan, Columns], Array]
    said: Callable[[Plan, Layout], str]
    near: tuple[str, ...] = ()
    ways: Callable[[Plan, Layout], tuple[str, ...]] = lambda plan, layout: ()

    @property
    def field(self) -> str:
        """The options as they are typed: "--pp/--vpp"."""
        return "/".join(flag(name) for name in self.options)

    def sentence(self, plan: Plan, layout: Layout) -> str:
        """Why the layout is not allowed, and the ways out."""
        near = [text for name in self.near if (text := self._nearest(plan, layout, name))]
        near = [f"nearest: {', or '.join(near)}"] if near else []
        ways = [*near, *(way for way in self.ways(plan, layout) if way)]
        return f"{self.said(plan, layout)}{'; ' if ways else ''}{', or '.join(ways)}"

    def _nearest(self, plan: Plan, layout: Layout, name: str) -> str:
        """The values below and above the given one that satisfy the condition: "--tp 4 or 8"."""
        batch = plan.training.global_batch
        given = batch if name == "global_batch" else getattr(layout, name)
        most = {"micro_batch": batch, "global_batch": batch + layout.dp * layout.micro_batch}
        last = most.get(name, 0) or _most(plan)
        first = max(1, min(int(given), last) - _MOST_LISTED // 2)
        values = np.arange(first, min(last, first + _MOST_LISTED) + 1.0)
        if name in _DEGREES:
            values = values[np.mod(plan.cluster.gpus, values) == 0]
        table = Columns.of([layout]).each(lambda column: np.broadcast_to(column, values.shape))
        varied = Columns(**{**table.named(), name: values})
        fits = values[np.broadcast_to(self.holds(plan, varied), values.shape)]
        nearest = [*fits[fits < given][-1:], *fits[fits > given][:1]]
        return f"{flag(name)} {' or '.join(f'{value:.0f}' for value in nearest)}" if nearest else ""


def _most(plan: Plan) -> int:
    """Upper bound of a degree that divides GPUs, layers or experts."""
    routed = plan.model.routed
    return max(plan.cluster.gpus, plan.model.layers, routed.experts if routed else 1)


def ones(c: Columns) -> Array:
    """True for every layout."""
    return np.ones_like(c.tp, dtype=bool)


def on_arrays(kind: type[Mechanism], holds: Callable[[Columns], Array], c: Columns) -> Array:
    """A condition of a mechanism, on plain arrays."""
    where = f"a condition of the mechanism {kind.NAME}"
    result = plug_in(where, lambda plain: {where: holds(plain)}, c, (where,), boolean=True)
    return result[where]


def of_mechanism(kind: type[Mechanism], rule: Rule) -> Rule:
    """The rule of a mechanism: it holds where that is off."""

    def holds(plan: Plan, c: Columns) -> Array:
        off = ~c.offloads(*kind.OFFLOADS) if kind.OFFLOADS else ones(c) & (not plan.setting(kind))
        if np.all(off):
            return ones(c)
        return off | on_arrays(kind, functools.partial(rule.holds, plan), c)

    return replace(rule, holds=holds)


def divides(divisor: Array, number: Array) -> Array:
    """Whether numbers divide without a rest."""
    return np.mod(number, np.maximum(divisor, 1)) == 0
