"""The best layout of many requests at once.

What one layout takes does not depend on how many GPUs there are besides it, on other global batches
or on prices. Plans that differ only in these are one table: layouts are enumerated once for all
global batches and evaluated together, so that what the plans have in common is computed once. On
sweeps that is two to four times as fast as a search for each (benchmarks/sweep_rate.py).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from planner.estimate import Estimates, cut, evaluate
from planner.estimate.factored import Space
from planner.search import FEW_LAYOUTS, ROUNDS, far_s, in_turn, is_far, near_s, wanted_s
from planner.search.alike import Allowed, Best, Key, Keys, enumerated, evaluated
from planner.search.behind import Behind, reach
from planner.search.choose import ENOUGH, NONE, of_all
from planner.search.question import KEPT, Question, question_of
from planner.search.software import (
    Choices,
    Rank,
    Settling,
    better,
    beyond_room,
    other_degrees,
    polished,
    probed,
    roomier,
)
from planner.specs.base import PlanError
from planner.specs.columns import joined
from planner.specs.layout import Layout
from planner.specs.plan import Plan

_RANK_OF_ANY: Rank = (NONE, np.inf)  # limits no search


@dataclass(frozen=True)
class Chosen:
    """The layout taken for one request: estimates of a table of one row."""

    estimates: Estimates
    fits: bool
    layouts: int  # that the rules allow, over all plans of the request
    work: int  # rows of layouts that were bounded, and layouts that were evaluated


_Question = tuple[Sequence[Sequence[Plan]], Sequence[float] | None]


def choose(
    requests: Sequence[Sequence[Plan]], most: Sequence[float] | None = None
) -> list[Chosen | PlanError | None]:
    """For each request (its plans, one per stack) the layout that an estimate would choose.

    None where the rules allow no layout, an error where the request cannot be evaluated; the others
    are answered all the same. most: of each request, seconds of a step per sequence beyond which no
    layout is wanted; there may be none then, or a slower one.
    """
    return list(kept(question_of((requests, most))))


@functools.lru_cache(maxsize=KEPT)
def kept(question: Question[_Question]) -> tuple[Chosen | PlanError | None, ...]:
    """The layouts of the last few questions."""
    return tuple(_chosen(*question.plans))


def _chosen(
    requests: Sequence[Sequence[Plan]], most: Sequence[float] | None
) -> list[Chosen | PlanError | None]:
    keys = Keys()
    limits = [np.inf] * len(requests) if most is None else most
    known = [limit for plans, limit in zip(requests, limits, strict=True) for _ in plans]
    each = _searches([plan for plans in requests for plan in plans], keys)
    for search, limit in zip(each, known, strict=True):
        search.known = limit
    in_order = iter(each)
    searches = [[next(in_order) for _ in plans] for plans in requests]
    turns = [
        [request[i] for i in in_turn(plans)]
        for request, plans in zip(searches, requests, strict=True)
    ]
    for turn in itertools.zip_longest(*turns):
        _run(
            [(search, request) for search, request in zip(turn, searches, strict=True) if search],
            keys,
        )
        _make_room([search for search in turn if search], keys)
    _drop_the_far(searches, keys)
    for _ in range(ROUNDS):
        _improve(each, keys)
    answers = [_answer(request) for request in searches]
    full = _full([entry for entry in answers if isinstance(entry, Best)], keys)
    return [
        Chosen(next(full), entry.fits, _count(request), _work(request))
        if isinstance(entry, Best)
        else entry
        for request, entry in zip(searches, answers, strict=True)
    ]


def _searches(plans: Sequence[Plan], keys: Keys) -> list[_Search]:
    """The searches of these plans, with the free options that are usually best."""
    spaces = _spaces([plan.choosing(plan.start) if plan.free else plan for plan in plans], keys)
    # a request that states its layout whole states kernels and overlap, too
    whole = [
        i
        for i, (plan, space) in enumerate(zip(plans, spaces, strict=True))
        if plan.free and isinstance(space, Allowed) and space.count <= 1
    ]
    plain = _spaces([plans[i].choosing(()) for i in whole], keys)
    stated = dict(zip(whole, plain, strict=True))
    searches = [
        _Search(plan, stated.get(i, spaces[i]), bool(plan.free) and i not in stated)
        for i, plan in enumerate(plans)
    ]
    _probe([search for search in searches if search.open], keys)
    return searches


def _probe(searches: Sequence[_Search], keys: Keys) -> None:
    """Begin with other free options where the fastest layouts of a kind are faster with them."""
    alike: dict[Hashable, list[tuple[_Search, Space]]] = {}
    for search in searches:
        if isinstance(space := search.space, Allowed) and space.count:
            alike.setdefault(keys.estimate(search.plan), []).append((search, space.as_space))
    others: list[tuple[_Search, Plan]] = []
    for members in alike.values():
        plan = members[0][0].plan
        starts = probed(plan, [space for _, space in members])
        others += [
            (search, search.plan.choosing(start))
            for (search, _), start in zip(members, starts, strict=True)
            if start != plan.start
        ]
    for (search, _), space in zip(others, _spaces([plan for _, plan in others], keys), strict=True):
        search.space = space


def _spaces(plans: Sequence[Plan], keys: Keys) -> list[Allowed | PlanError]:
    """The layouts of each plan. Plans with equal keys share them and differ in prices."""
    of_keys = [(keys.of(plan), plan) for plan in plans]
    allowed = enumerated(dict(of_keys))
    spaces = ((allowed[key], plan) for key, plan in of_keys)
    return [
        space if isinstance(space, PlanError) else dataclasses.replace(space, plan=plan)
        for space, plan in spaces
    ]


class _Search:
    """The search of one plan. space: its layouts, or why they cannot be listed; open: whether other
    free options may be tried; best: the layout that is best so far, None before any is known."""

    def __init__(self, plan: Plan, space: Allowed | PlanError, is_open: bool) -> None:
        self.plan, self.space = plan, space
        self.best: Best | PlanError | None = space if isinstance(space, PlanError) else None
        self.open = is_open
        self.looked: set[Layout] = set()  # whose free options are settled
        self.most = np.inf  # seconds of a step of the best of other plans
        self.known = np.inf  # seconds per sequence beyond which no layout is wanted
        self.reach: float | None = None  # see `behind.reach`

    def is_far(self, best: Rank | None) -> bool:
        """Whether another plan of the request, whose rank this is, is too far ahead."""
        if not isinstance(self.best, Best) or best is None:
            return False
        return is_far(of_all(self.best.rank, self.best.plan), best, self.plan, self.reach)

    def settling(self) -> Settling | None:
        """The layouts to look at with other free options; None where that was done."""
        if not self.open or not isinstance(self.best, Best):
            return None
        beyond = beyond_room(self.best.rank, self.plan)
        if beyond or self.best.table.layout(0) in self.looked:
            self.open = False
            return None
        near = self.best.near
        assert near is not None  # of an open search
        self.looked |= {near.table.layout(i) for i in range(len(near.table))}
        return Settling(self.best.plan.chosen, near, self.best.rank)


def _run(searches: Sequence[tuple[_Search, Sequence[_Search]]], keys: Keys) -> None:
    """The best layouts with the free options that are usually best, each beside the other searches
    of its request."""
    of_keys = []
    for search, request in searches:
        space = search.space
        if isinstance(space, Allowed) and space.count:
            search.most = wanted_s(space.plan, _best_of(request))
            few = search.open and space.count <= FEW_LAYOUTS
            most = np.inf if few else far_s(search.most)
            limited = dataclasses.replace(space, most=most, open=search.open)
            of_keys.append((keys.of(space.plan), search, limited))
    best = evaluated(_least_limited((key, start) for key, _, start in of_keys))
    for key, search, start in of_keys:
        if key in best:
            search.best = _of_plan(best[key], start.plan)


def _least_limited(spaces: Iterable[tuple[Key, Allowed]]) -> dict[Key, Allowed]:
    """The most demanding of equal plans, whose requests differ in their other stacks."""
    out: dict[Key, Allowed] = {}
    for key, space in spaces:
        known = out.setdefault(key, space)
        most, open_ = max(known.most, space.most), known.open or space.open
        out[key] = dataclasses.replace(known, most=most, open=open_)
    return out


def _best_of(request: Sequence[_Search]) -> Rank | None:
    """The best rank of a request's searches so far, or what is wanted."""
    ranks = [
        of_all(entry.best.rank, entry.plan) for entry in request if isinstance(entry.best, Best)
    ]
    ranks += [(ENOUGH, entry.known) for entry in request if np.isfinite(entry.known)]
    return min(ranks, default=None)


def _drop_the_far(searches: Sequence[Sequence[_Search]], keys: Keys) -> None:
    """Leave free options as they are where another plan of the request is too far ahead."""
    open_ = []
    for request in searches:
        best = _best_of(request)
        for search in request:
            search.most = wanted_s(search.plan, best)
            if search.open:
                open_.append((search, best))
    alike: dict[Hashable, list[tuple[_Search, Behind]]] = {}
    for search, best in open_:
        mine = search.best
        if not isinstance(mine, Best) or mine.near is None:
            continue
        if mine.rank[0] == ENOUGH and search.is_far(best):
            behind = Behind(mine.plan.chosen, mine.near.table, mine.rank[1], search.most)
            alike.setdefault(keys.estimate(search.plan), []).append((search, behind))
    for members in alike.values():
        times = reach(members[0][0].plan, [behind for _, behind in members])
        for (search, _), reached in zip(members, times, strict=True):
            search.reach = reached
    for search, best in open_:
        search.open = not search.is_far(best)


def _make_room(searches: Sequence[_Search], keys: Keys) -> None:
    """The best layouts with free options that make much room, where that gains."""
    alike: dict[Hashable, list[tuple[_Search, Best]]] = {}
    for search in searches:
        best = search.best
        if search.open and isinstance(best, Best) and not beyond_room(best.rank, search.plan):
            alike.setdefault(keys.estimate(search.plan), []).append((search, best))
    again: list[tuple[_Search, Choices, Rank]] = []
    for members in alike.values():
        taken = [(best.plan.chosen, best.table) for _, best in members]
        options = roomier(members[0][0].plan, taken)
        again += [
            (search, choices, best.rank)
            for (search, best), choices in zip(members, options, strict=True)
            if choices is not None
        ]
    _search_again(again, keys)
    # one value after the other, each against the best before it, as a search by itself does
    tries = [
        [(search, choices) for choices in other_degrees(search.plan, best.plan.chosen, best.rank)]
        for search in searches
        if search.open and np.isinf(search.most) and isinstance(best := search.best, Best)
    ]
    for turn in itertools.zip_longest(*tries):
        _search_again([(*entry, _RANK_OF_ANY) for entry in turn if entry], keys)


def _improve(searches: Sequence[_Search], keys: Keys) -> None:
    """The best layouts with other free options, where these gain."""
    alike: dict[Hashable, list[tuple[_Search, Settling]]] = {}
    for search in searches:
        if (settling := search.settling()) is not None:
            alike.setdefault(keys.estimate(search.plan), []).append((search, settling))
    again: list[tuple[_Search, Choices, Rank]] = []
    for members in alike.values():
        result = polished(members[0][0].plan, [settling for _, settling in members])
        for (search, settling), (choices, rank) in zip(members, result, strict=True):
            search.open = better(rank, settling.rank)
            if search.open:
                again.append((search, choices, rank))
    for search, gained in _search_again(again, keys):
        search.open = gained


def _search_again(
    searches: Sequence[tuple[_Search, Choices, Rank]], keys: Keys
) -> list[tuple[_Search, bool]]:
    """Searches with other free options, each for layouts near a rank: whether they gain, in which
    case their layout is taken."""
    variants = [
        (keys.of(plan), search, plan, min(far_s(search.most, search.reach), near_s(rank)))
        for search, choices, rank in searches
        for plan in [search.plan.choosing(choices)]
    ]
    allowed = enumerated({key: plan for key, _, plan, _ in variants})
    best = evaluated(
        _least_limited(
            (key, dataclasses.replace(space, most=most))
            for key, _, _, most in variants
            if isinstance(space := allowed[key], Allowed)
        )
    )
    out = []
    for key, search, plan, _ in variants:
        again = best.get(key)
        gained = isinstance(again, Best) and better(again.rank, _rank(search))
        if gained and again is not None:
            search.best = _of_plan(again, plan)
        out.append((search, gained))
    return out


def _rank(search: _Search) -> Rank:
    assert isinstance(search.best, Best)
    return search.best.rank


def _of_plan(best: Best | PlanError, plan: Plan) -> Best | PlanError:
    """A search of a plan with equal values, which may have other prices."""
    return best if isinstance(best, PlanError) else dataclasses.replace(best, plan=plan)


def _answer(request: Sequence[_Search]) -> Best | PlanError | None:
    """The best over the plans of a request; an error of any of them is the request's."""
    errors = [search.best for search in request if isinstance(search.best, PlanError)]
    if errors:
        return errors[0]
    layouts = [search.best for search in request if isinstance(search.best, Best)]
    return min(layouts, key=lambda entry: of_all(entry.rank, entry.plan), default=None)


def _work(request: Sequence[_Search]) -> int:
    """Rows that were bounded and layouts that were evaluated for a request."""
    rows = sum(len(entry.space.rows) for entry in request if isinstance(entry.space, Allowed))
    return rows + sum(entry.best.evaluated for entry in request if isinstance(entry.best, Best))


def _count(request: Sequence[_Search]) -> int:
    each = {(entry.plan.stack.id, entry.plan.request.zero): entry.space for entry in request}
    return sum(space.count for space in each.values() if isinstance(space, Allowed))


# ------------------------------------------------------------------------------- the chosen rows


def _full(best: Sequence[Best], keys: Keys) -> Iterator[Estimates]:
    """Full estimates of the chosen rows, evaluated together where plans allow, and where nothing
    has evaluated them before."""
    alike: dict[Hashable, list[int]] = {}
    out: dict[int, Estimates] = {}
    for i, entry in enumerate(best):
        if entry.known is not None:
            out[i] = one_row(entry.known, 0, entry.plan)
        else:
            alike.setdefault(keys.estimate(entry.plan), []).append(i)
    for members in alike.values():
        whole = evaluate(best[members[0]].plan, joined([best[i].table for i in members]))
        out.update((i, one_row(whole, row, best[i].plan)) for row, i in enumerate(members))
    return (out[i] for i in range(len(best)))


def one_row(estimates: Estimates, row: int, plan: Plan) -> Estimates:
    """One layout's share of estimates of many, as estimates of `plan`, without the parts of its
    memory.

    The table has no global batches of its own; `report.evaluate_row` evaluates every stage again if
    needed.
    """
    rows = len(estimates.table)
    time = dataclasses.replace(estimates.time, detail={})
    memory = dataclasses.replace(estimates.memory, components={}, stage_components=[], phases=[])
    table = dataclasses.replace(estimates.table, global_batch=None)
    bare = dataclasses.replace(estimates, time=time, memory=memory, table=table)
    layout: Estimates = dataclasses.replace(cut(bare, row, rows), plan=plan)
    return layout
