"""Every valid layout of a plan: enumerate, mask by rules, estimate, rank, keep the front of time
against memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.estimate import Outline, outline
from planner.estimate.factored import Space
from planner.formulas.rules import RULES
from planner.ledger import Array
from planner.search import where
from planner.search.behind import Behind, reach
from planner.search.choose import (
    ENOUGH,
    NONE,
    Candidates,
    best,
    choice,
    fastest_that_fits,
    of_all,
    order,
    pareto,
    ranked,
    smallest,
    spent,
    timed,
)
from planner.search.prune import SLACK, pruned
from planner.search.software import (
    DEGREES,
    NEAR,
    Choices,
    Rank,
    Settling,
    better,
    beyond_room,
    listed,
    other_degrees,
    polished,
    probed,
    roomier,
)
from planner.search.space import degrees, layouts_of
from planner.specs.base import PlanError
from planner.specs.capabilities import values
from planner.specs.columns import Columns
from planner.specs.layout import Layout
from planner.specs.plan import Plan
from planner.specs.where import SHARES, constraint

__all__ = [
    "BEST",
    "MOST_LAYOUTS",
    "Candidates",
    "Found",
    "Wanted",
    "allowed_layouts",
    "allows_as_much",
    "best",
    "degrees",
    "families",
    "family_rows",
    "fastest_that_fits",
    "layouts",
    "order",
    "pareto",
    "ranked",
    "search",
    "smallest",
    "spent",
    "timed",
]

_FEW = 65536  # rows times options up to which plain columns are faster than factored ones
_MOST_PLAIN = 1_000_000  # of a table of plain columns: 120 bytes each
# of one stack, enumerated: 40 bytes a row; a request with more has unusually many divisors
MOST_LAYOUTS = 50_000_000
MOST_EVALUATED = 2_000_000  # where all are wanted; beyond it only those among the best


@dataclass(frozen=True)
class _Tried:
    """Layouts that satisfy conditions, and how many each condition rejected: the first of those
    that a layout breaks counts."""

    space: Space
    rejected: dict[str, int]
    enumerated: int  # layouts before any condition


Conditions = Sequence[tuple[str, Callable[[Columns], Array]]]


def _restricted(
    space: Space, conditions: Conditions, *, estimated: bool = False
) -> tuple[Space, dict[str, int]]:
    """(the layouts that satisfy all conditions, how many each condition rejected). estimated:
    conditions on estimated quantities, which only factored columns and plain rows have, rather than
    on layout columns."""
    if not conditions:
        return space, {}
    if space.most <= _FEW and not estimated:
        return _restricted_few(space, conditions)
    rejected: dict[str, int] = {}
    columns = space.columns()
    for name, holds in conditions if space.count else ():
        left = space.restricted(holds(columns))
        if left is space:
            continue
        rejected[name] = space.count - left.count
        space = left
        if not space.count:
            break
        columns = space.columns()
    return space, rejected


def _restricted_few(space: Space, conditions: Conditions) -> tuple[Space, dict[str, int]]:
    """`_restricted` on plain columns that broadcast over rows and options."""
    columns = Columns(
        **{k: v[:, None] for k, v in space.outer.items()},
        **{k: v[None, :] for k, v in space.inner.items()},
    )
    rejected: dict[str, int] = {}
    allowed = space.options[space.pattern]
    before = int(allowed.sum())
    for name, holds in conditions:
        allowed = allowed & holds(columns)
        if count := before - int(allowed.sum()):
            rejected[name] = count
            before -= count
    return Space.of(space.outer, space.inner, allowed, np.arange(space.rows)), rejected


def _tried(plan: Plan, most: int, batches: Sequence[int] | None = None) -> _Tried:
    """All layouts that satisfy what the request fixed and its conditions; an error above `most`."""
    whole = layouts_of(plan, batches)
    space, rejected = _restricted(whole, _conditions(plan, estimated=False))
    if space.count > most * (1 if batches is None else len(batches)):
        request = plan.request.model_dump(
            exclude={"acting"}, exclude_none=True, exclude_defaults=True
        )
        raise PlanError(
            "layout",
            request,
            f"{space.count:,} layouts are possible with {plan.stack.title}, more than the {most:,}"
            " that are searched at once; fix some, such as --recompute, --tp, --pp or --ep, or add"
            " a condition with --where",
        )
    return _Tried(space, rejected, whole.count)


def _conditions(plan: Plan, *, estimated: bool) -> Conditions:
    """The conditions of the request on columns of a layout, or on what it is estimated to need."""
    wheres = [constraint(text) for text in plan.request.where]
    return [
        (f"where {entry.text}", functools.partial(where.holds, plan, entry))
        for entry in wheres
        if (entry.name in SHARES) == estimated
    ]


def layouts(plan: Plan) -> Columns:
    """Plain table of all layouts that satisfy what the request fixed, a million at most; rules and
    conditions on what a layout needs are applied by the caller.

    `search` evaluates the same layouts several times as fast; a table is for few of them.
    """
    return _tried(plan, _MOST_PLAIN).space.flat()


def _allowed(plan: Plan, batches: Sequence[int] | None = None) -> _Tried:
    """Layouts that break no rule."""
    tried = _tried(plan, MOST_LAYOUTS, batches)
    rules = [(rule.name, functools.partial(rule.holds, plan)) for rule in RULES]
    space, rejected = _restricted(tried.space, rules)
    left, roomless = _restricted(space, _conditions(plan, estimated=True), estimated=True)
    return _Tried(left, tried.rejected | rejected | roomless, tried.enumerated)


def allowed_layouts(plan: Plan, batches: Sequence[int] | None = None) -> Space:
    """All layouts of the plan that satisfy what the request fixed, its conditions and the rules;
    nothing evaluated.

    batches: for each of these global batches in place of the plan's, which rows have in a column
    `global_batch`. Raises PlanError where that is too many.
    """
    return _allowed(plan, batches).space


@dataclass(frozen=True)
class Wanted:
    """Results wanted of a search: the `count` fastest layouts that fit, of all or of each family;
    or every layout (whole), as far as these are not too many."""

    count: int = 1
    families: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Found:
    """Outcome of a search in one plan (one stack)."""

    plan: Plan
    estimates: Outline | None  # of the layouts evaluated; None when no layout is allowed
    rejected: dict[str, int]  # layouts that a rule forbids, by rule
    enumerated: int
    excluded: int = 0  # allowed layouts that are slower than what was wanted, by a bound
    reach: float | None = None  # see `behind.reach`; None where it was not needed
    allowed: _Tried | None = None  # the layouts that were searched


BEST = Wanted()
# options that some rule depends on, or which layouts are listed
_RULED = {name for rule in RULES for name in rule.options}.union(DEGREES)
ROUNDS = 2  # searches with other free options at most
_ROOM = 1.25  # times the usable bytes, beyond what free options save
_FAR = 1.1  # times the seconds of another plan: what the room that free options make gains
FEW_LAYOUTS = 4096  # of a plan, up to which all are evaluated however fast another plan is


def search(plan: Plan, tick: Callable[[float], None] | None = None, wanted: Wanted = BEST) -> Found:
    """Evaluate the allowed layouts of the plan among which the wanted ones are, with the free
    options of its stack that are best. tick: called with the share done, now and then."""
    return improved(plan, started(plan, tick, wanted), wanted)


def started(
    plan: Plan,
    tick: Callable[[float], None] | None = None,
    wanted: Wanted = BEST,
    most: float = np.inf,
) -> Found:
    """The search with the free options that are usually best. most: seconds of a step of the best
    of other plans, where one is known; layouts that no free option makes as fast are left out."""
    if not plan.free:
        return _evaluated(plan, _allowed(plan), wanted, tick, far_s(most))
    variant, wanted = plan.choosing(plan.start), replace(wanted, whole=False)
    allowed = _allowed(variant)
    if allowed.space.count <= 1:
        return _evaluated(plan, _allowed(plan), wanted)  # stated whole, its kernels, too
    (start,) = probed(plan, [allowed.space])
    if start != plan.start:
        usual, variant = variant, plan.choosing(start)
        allowed = allowed if allows_as_much(usual, variant) else _allowed(variant)
    limit = far_s(most) if allowed.space.count > FEW_LAYOUTS else np.inf
    result = _evaluated(variant, allowed, wanted, tick, limit, NEAR)
    result = _with_room(plan, result, wanted, most)
    return result if np.isfinite(most) else _with_degrees(plan, result, wanted)


def far_s(most: float, times: float | None = None) -> float:
    """Seconds of a step beyond which no free option makes a layout as fast as other plans' best.
    times: see `behind.reach`."""
    return most * max(_FAR, times or 1.0)


def reached(
    plans: Sequence[Plan], results: Sequence[Found], best: Rank | None
) -> tuple[Found, ...]:
    """The searches of these plans with the reach of those behind the best (see
    `choose.of_all`)."""
    out, behind = list(results), {}
    for i, (plan, result) in enumerate(zip(plans, results, strict=True)):
        if best is None or result.estimates is None or result.plan is plan:
            continue
        taken = choice(result.estimates)
        if taken.rank[0] == ENOUGH and is_far(of_all(taken.rank, plan), best, plan):
            near = listed(result.estimates, taken).table
            behind[i] = Behind(result.plan.chosen, near, taken.rank[1], wanted_s(plan, best))
    for stack in dict.fromkeys(plans[i].stack.id for i in behind):
        of_stack = [i for i in behind if plans[i].stack.id == stack]
        times = reach(plans[of_stack[0]], [behind[i] for i in of_stack])
        for i, reach_of in zip(of_stack, times, strict=True):
            out[i] = replace(results[i], reach=reach_of)
    return tuple(out)


def improved(
    plan: Plan, result: Found, wanted: Wanted = BEST, *, far: bool = False, most: float = np.inf
) -> Found:
    """The search with other free options, as long as that gains. far: another plan is so far ahead
    that none does; most: as in `started`."""
    if result.plan is plan:  # which leaves none open
        return result
    looked: set[Layout] = set()  # whose options are settled
    for _ in range(0 if far else ROUNDS):
        settling = _settling(result, looked)
        if settling is None:
            break
        ((choices, rank),) = polished(plan, [settling])
        if not better(rank, settling.rank):
            break
        limit = min(far_s(most, result.reach), near_s(rank))
        again = _again(plan, result, choices, settling.rank, wanted, limit)
        if again is None:
            break
        result = replace(again, reach=result.reach)
    if wanted.whole and result.excluded:
        return _evaluated(result.plan, _allowed(result.plan), wanted)
    return result


def _with_room(plan: Plan, result: Found, wanted: Wanted, most: float) -> Found:
    """The search with free options that make much room, where that gains."""
    if result.estimates is None:
        return result
    taken = choice(result.estimates)
    if beyond_room(taken.rank, plan):
        return result
    table = result.estimates.rows(np.array([taken.row]))
    (choices,) = roomier(plan, [(result.plan.chosen, table)])
    if choices is None:
        return result
    limit = min(far_s(most), near_s(taken.rank))
    return _again(plan, result, choices, taken.rank, wanted, limit) or result


def _with_degrees(plan: Plan, result: Found, wanted: Wanted) -> Found:
    """The search with free options that are degrees, where no layout of any plan has enough
    room."""
    if result.estimates is None:
        return result
    rank = choice(result.estimates).rank
    for choices in other_degrees(plan, result.plan.chosen, rank):
        again = _again(plan, result, choices, rank, wanted, np.inf)
        if again is not None and again.estimates is not None:
            result, rank = again, choice(again.estimates).rank
    return result


def allows_as_much(plan: Plan, other: Plan) -> bool:
    """Whether plans that differ in free options allow the same layouts: no rule reads those that
    differ."""
    differ = {*plan.chosen} ^ {*other.chosen}
    return all(each.mechanism is None and each.option not in _RULED for each in differ)


def _again(
    plan: Plan, old: Found, choices: Choices, rank: Rank, wanted: Wanted, most: float
) -> Found | None:
    """The search with these free options; None where that is not better than this rank. old: a
    search with others."""
    variant, part = plan.choosing(choices), replace(wanted, whole=False)
    known = old.allowed if allows_as_much(old.plan, variant) else None
    again = _evaluated(variant, known or _allowed(variant), part, most=most, near=NEAR)
    if again.estimates is None or not better(choice(again.estimates).rank, rank):
        return None
    return again


def _settling(result: Found, looked: set[Layout]) -> Settling | None:
    """The layouts to look at with other free options; None where that was done."""
    if result.estimates is None:
        return None
    taken = choice(result.estimates)
    layout = result.estimates.rows(np.array([taken.row])).layout(0)
    if layout in looked or beyond_room(taken.rank, result.plan):
        return None
    near = listed(result.estimates, taken)
    looked |= {near.table.layout(i) for i in range(len(near.table))}
    return Settling(result.plan.chosen, near, taken.rank)


def is_far(rank: Rank, best: Rank, plan: Plan, times: float | None = None) -> bool:
    """Whether a layout of the plan is so far behind another plan's that no free option makes up for
    it: in time, or in memory where it does not fit. Both ranks: see `choose.of_all`; times: see
    `behind.reach`."""
    if best[0] != ENOUGH:
        return False
    if rank[0] == ENOUGH:
        return rank[1] > far_s(best[1], times)
    return rank[0] == NONE and rank[1] > _ROOM * plan.usable_bytes


def wanted_s(plan: Plan, best: Rank | None) -> float:
    """Seconds of a step of the plan as fast as the best of other plans."""
    if best is None or best[0] != ENOUGH:
        return np.inf
    return best[1] * plan.training.global_batch


def near_s(rank: Rank) -> float:
    """Seconds of a step up to which layouts are near one of this rank."""
    return rank[1] * SLACK * (1 + NEAR) if rank[0] == ENOUGH else np.inf


def in_turn(plans: Sequence[Plan]) -> list[int]:
    """Positions of plans in the order of their searches: the stack that runs most kinds of
    parallelism comes first, since others seldom beat it."""
    degrees = ("tp", "pp", "cp", "ep")
    ways = [sum(bool(values(plan.stack, name)) for name in degrees) for plan in plans]
    return sorted(range(len(plans)), key=lambda i: (-ways[i], -i))


def _evaluated(
    plan: Plan,
    allowed: _Tried,
    wanted: Wanted,
    tick: Callable[[float], None] | None = None,
    most: float = np.inf,
    near: float = 0.0,
) -> Found:
    """most, near: see `prune.pruned`."""
    space = allowed.space
    counts = allowed.rejected, allowed.enumerated
    if not space.count:
        return Found(plan, None, *counts)
    if wanted.whole and space.count <= MOST_EVALUATED:
        result = outline(plan, space, tick=tick)
        return Found(plan, result, *counts)
    groups = _family_of(space) if wanted.families else None
    limit = most if wanted.count == 1 and groups is None else np.inf
    kept = pruned(plan, space, wanted.count, groups, limit, near)
    if tick is not None:
        tick(1.0)
    return Found(plan, kept.estimates, *counts, kept.excluded, allowed=allowed)


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
    """`family_rows` of all layouts of a space."""
    space = estimates.space
    return {name: among[space.row] for name, among in _families_of_rows(space).items()}


def _families_of_rows(space: Space) -> dict[str, Array]:
    """`family_rows` of the rows of a space: a family depends on neither recompute nor
    offloading."""
    any_option = {name: column[:1] for name, column in space.inner.items()}
    return family_rows(Columns(**space.outer, **any_option))


def _family_of(space: Space) -> Array:
    """The family of every row as a number; 0 where it has none."""
    each = _families_of_rows(space).values()
    return sum((i * among for i, among in enumerate(each, 1)), np.zeros(space.rows, dtype=np.intp))
