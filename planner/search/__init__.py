"""Every valid layout of a plan: enumerate, mask by rules, estimate, rank, keep the front of time against memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from planner.estimate import Outline, outline
from planner.estimate.factored import Space
from planner.estimate.table import COLUMNS, Table
from planner.formulas.rules import check
from planner.ledger import Array
from planner.search import space, where
from planner.search.choose import best, order, pareto, ranked, smallest
from planner.search.space import divisors
from planner.specs.base import PlanError
from planner.specs.plan import Plan
from planner.specs.where import constraint

__all__ = [
    "MOST_LAYOUTS", "Found", "best", "divisors", "families", "family_rows", "layouts", "order", "pareto", "ranked", "search",
    "smallest",
]  # fmt: skip

CHUNK = 16384  # rows of plain tables that are evaluated together
MOST_LAYOUTS = 8_000_000  # of one stack, a few seconds; a request with more has unusually many divisors


@dataclass(frozen=True)
class _Tried:
    """Rows and options of all layouts that satisfy what the request fixed, which of them go together, and how many do not."""

    rows: Table
    options: Table
    wanted: Array
    enumerated: int
    rejected: dict[str, int]  # by the conditions of the request

    @property
    def columns(self) -> Table:
        """Columns that broadcast over (rows, options)."""
        return {**{k: v[:, None] for k, v in self.rows.items()}, **{k: v[None, :] for k, v in self.options.items()}}


def _tried(plan: Plan) -> _Tried:
    rows, options = space.outer(plan), space.inner(plan)
    found = _Tried(rows, options, space.tried(plan, rows, options), 0, {})
    enumerated, rejected = int(found.wanted.sum()), {}
    for one in map(constraint, plan.request.where):
        if count := _mask(found.wanted, where.holds(plan, found.columns, one)):
            rejected[f"where {one.text}"] = count
    if (count := int(found.wanted.sum())) > MOST_LAYOUTS:
        asked = plan.request.model_dump(exclude_none=True, exclude_defaults=True)
        raise PlanError(
            "layout", asked, f"{count:,} layouts are possible with {plan.stack.title}, more than the {MOST_LAYOUTS:,} that are "
            "searched at once; fix some, such as --recompute, --tp, --pp or --ep, or add a condition with --where",
        )  # fmt: skip
    return _Tried(rows, options, found.wanted, enumerated, rejected)


def _mask(wanted: Array, holds: Array) -> int:
    """Leave what holds, in place; how many fell."""
    if np.all(holds):
        return 0
    fails = wanted & ~np.asarray(holds, dtype=bool)
    wanted &= ~fails
    return int(fails.sum())


def layouts(plan: Plan) -> Table:
    """Table of all layouts that satisfy what the request fixed; rules are applied by the caller."""
    tried = _tried(plan)
    found = Space(tried.rows, tried.options, tried.wanted).flat()
    return {name: found[name] for name in COLUMNS}


@dataclass(frozen=True)
class Found:
    """Outcome of a search in one plan (one stack)."""

    plan: Plan
    estimates: Outline | None  # of all allowed layouts; None when no layout is allowed
    rejected: dict[str, int]  # layouts that a rule forbids, by rule
    enumerated: int


def search(plan: Plan, tick: Callable[[float], None] | None = None) -> Found:
    """Evaluate every allowed layout of the plan. tick: called with the share done, now and then."""
    tried = _tried(plan)
    allowed, rejected = tried.wanted, dict(tried.rejected)
    for name, holds in check(plan, tried.columns).items():
        if count := _mask(allowed, holds):
            rejected[name] = count
    if not allowed.any():
        return Found(plan, None, rejected, tried.enumerated)
    return Found(plan, outline(plan, Space(tried.rows, tried.options, allowed), tick=tick), rejected, tried.enumerated)


# ------------------------------------------------------------------------------------------------ families


def family_rows(table: Mapping[str, Array]) -> dict[str, Array]:
    """Boolean column per family of layouts."""
    alone = (table["tp"] == 1) & (table["pp"] == 1) & (table["cp"] == 1) & (table["ep"] == 1)
    whole = table["shard_group"] == table["dp"] * table["cp"]
    zero = table["zero"]
    return {
        "DDP": alone & (zero == 0),
        "ZeRO-1": alone & (zero == 1),
        "ZeRO-2": alone & (zero == 2),
        "ZeRO-3 / FSDP": alone & (zero == 3) & whole,
        "hybrid shard": alone & (zero == 3) & ~whole,
        "TP x PP x DP, ZeRO-1": ~alone & (zero <= 1),
    }


def families(estimates: Outline) -> dict[str, Array]:
    """`family_rows` of all layouts of a space, whose family does not depend on recompute or offloading."""
    return {name: among[estimates.space.row] for name, among in family_rows(estimates.space.outer).items()}
