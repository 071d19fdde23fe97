"""Every valid layout of a plan: enumerate, mask by rules, estimate, rank, keep the front of time
against memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.estimate import Outline, outline
from planner.estimate.factored.column import Space, restricted
from planner.formulas.rules import RULES
from planner.ledger import Array
from planner.search import space, where
from planner.search.choose import best, order, pareto, ranked, smallest, spent
from planner.search.space import degrees, divisors
from planner.specs.base import PlanError
from planner.specs.columns import Columns
from planner.specs.plan import Plan
from planner.specs.where import constraint

__all__ = [
    "MOST_LAYOUTS",
    "Found",
    "allowed_layouts",
    "best",
    "degrees",
    "divisors",
    "families",
    "family_rows",
    "layouts",
    "order",
    "pareto",
    "ranked",
    "search",
    "smallest",
    "spent",
]

_FEW = 65536  # rows times options up to which plain columns are faster than factored ones
CHUNK = 16384  # rows of plain tables that are evaluated together
_MOST_PLAIN = 1_000_000  # of a table of plain columns: 120 bytes each
MOST_LAYOUTS = (
    8_000_000  # of one stack, a few seconds; a request with more has unusually many divisors
)


def _restrict(
    tried: Space,
    conditions: Iterable[tuple[str, Callable[[Columns], Array]]],
    rejected: dict[str, int],
) -> Space:
    """The layouts that satisfy all conditions, the first of which each other one breaks counted in
    `rejected`."""
    if tried.n * tried.width <= _FEW:
        return _restrict_few(tried, conditions, rejected)
    for name, holds in conditions:
        if not tried.count:
            break
        tried.forget()
        left, count = restricted(tried, holds(tried.columns))
        if left is not tried:
            tried.release()
        tried = left
        if count:
            rejected[name] = count
    return tried


def _restrict_few(
    tried: Space,
    conditions: Iterable[tuple[str, Callable[[Columns], Array]]],
    rejected: dict[str, int],
) -> Space:
    """`_restrict` on plain columns that broadcast over rows and options."""
    columns = Columns(
        **{k: v[:, None] for k, v in tried.outer.items()},
        **{k: v[None, :] for k, v in tried.inner.items()},
    )
    allowed = tried.options[tried.pattern]
    for name, holds in conditions:
        left = allowed & holds(columns)
        if count := int(allowed.sum()) - int(left.sum()):
            rejected[name] = count
        allowed = left
    return Space(tried.outer, tried.inner, allowed, np.arange(tried.n))


def _tried(
    plan: Plan, rejected: dict[str, int], most: int, batches: Sequence[int] | None = None
) -> tuple[Space, int]:
    """(all layouts that satisfy what the request fixed, how many there are without its conditions);
    an error above `most`."""
    whole = space.layouts_of(plan, batches)
    wheres = [constraint(text) for text in plan.request.where]
    tried = _restrict(
        whole,
        [(f"where {one.text}", functools.partial(where.holds, plan, one)) for one in wheres],
        rejected,
    )
    if tried.count > most * (1 if batches is None else len(batches)):
        asked = plan.request.model_dump(exclude_none=True, exclude_defaults=True)
        raise PlanError(
            "layout",
            asked,
            f"{tried.count:,} layouts are possible with {plan.stack.title}, more than the {most:,}"
            " that are searched at once; fix some, such as --recompute, --tp, --pp or --ep, or add"
            " a condition with --where",
        )
    return tried, whole.count


def layouts(plan: Plan) -> Columns:
    """Plain table of all layouts that satisfy what the request fixed, a million at most; rules are
    applied by the caller.

    `search` evaluates the same layouts a hundred times as fast; a table is for few of them, or for
    many plans together.
    """
    return _tried(plan, {}, _MOST_PLAIN)[0].flat()


@dataclass(frozen=True)
class Found:
    """Outcome of a search in one plan (one stack)."""

    plan: Plan
    estimates: Outline | None  # of all allowed layouts; None when no layout is allowed
    rejected: dict[str, int]  # layouts that a rule forbids, by rule
    enumerated: int


def allowed_layouts(plan: Plan, batches: Sequence[int] | None = None) -> Space:
    """All layouts of the plan that satisfy what the request fixed, its conditions and the rules;
    nothing evaluated.

    batches: for each of these global batches in place of the plan's, which rows have in a column
    `global_batch`. Raises PlanError where that is too many.
    """
    return _allowed(plan, {}, batches)[0]


def _allowed(
    plan: Plan, rejected: dict[str, int], batches: Sequence[int] | None = None
) -> tuple[Space, int]:
    tried, enumerated = _tried(plan, rejected, MOST_LAYOUTS, batches)
    return (
        _restrict(
            tried, [(rule.name, functools.partial(rule.holds, plan)) for rule in RULES], rejected
        ),
        enumerated,
    )


def search(plan: Plan, tick: Callable[[float], None] | None = None) -> Found:
    """Evaluate every allowed layout of the plan. tick: called with the share done, now and then."""
    rejected: dict[str, int] = {}
    allowed, enumerated = _allowed(plan, rejected)
    if not allowed.count:
        return Found(plan, None, rejected, enumerated)
    return Found(plan, outline(plan, allowed, tick=tick), rejected, enumerated)


# ------------------------------------------------------------------------------------------------ f


def family_rows(c: Columns) -> dict[str, Array]:
    """Boolean column per family of layouts."""
    alone = c.tp * c.pp * c.cp * c.ep == 1
    whole = c.shard_group == c.replicas
    return {
        "DDP": alone & (c.zero == 0),
        "ZeRO-1": alone & (c.zero == 1),
        "ZeRO-2": alone & (c.zero == 2),
        "ZeRO-3 / FSDP": alone & (c.zero == 3) & whole,
        "hybrid shard": alone & (c.zero == 3) & ~whole,
        "TP x PP x DP, ZeRO-1": ~alone & (c.zero <= 1),
    }


def families(estimates: Outline) -> dict[str, Array]:
    """`family_rows` of all layouts of a space, whose family does not depend on recompute or
    offloading."""
    space = estimates.space
    any_option = {name: column[:1] for name, column in space.inner.items()}
    rows = family_rows(Columns(**space.outer, **any_option))
    return {name: among[space.row] for name, among in rows.items()}
