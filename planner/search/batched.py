"""The best layout of many requests at once.

What one layout takes does not depend on how many GPUs there are besides it, on other global batches
or on prices. Plans that differ only in these are one table: layouts are enumerated once for all
global batches and evaluated together, so that what the plans have in common is computed once. On
sweeps that is two to four times as fast as a search for each (benchmarks/sweep_rate.py).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.estimate import Estimates, cut, evaluate
from planner.estimate.factored import Space
from planner.ledger import Array
from planner.search import ROUNDS, allowed_layouts, in_turn, is_far, near_s, wanted_s
from planner.search.choose import choice, of_all
from planner.search.prune import pruned
from planner.search.software import NEAR, Rank, Settling, better, listed, polished
from planner.specs.base import PlanError, Spec
from planner.specs.columns import ByName, Columns, joined
from planner.specs.layout import Layout
from planner.specs.plan import Plan
from planner.specs.ranks import RanksSpec

# layouts evaluated as one table: with more the time per layout stays and memory grows
# (benchmarks/sweep_rate.py: 0.4 GB with this, 1.1 GB with four times as many)
BLOCK = 1_000_000

_ORDER = ("offload", "recompute", "recompute_size")  # of the options of a row
# fields that enumerate or rank layouts, or price a run, but do not change what one layout takes
_APART: dict[str, frozenset[str]] = {
    "cluster": frozenset({"gpus", "title", "usd_per_gpu_hour"}),
    "training": frozenset({"global_batch", "tokens"}),
}


@dataclass(frozen=True)
class Chosen:
    """The layout taken for one request: estimates of a table of one row."""

    estimates: Estimates
    fits: bool
    layouts: int  # that the rules allow, over all plans of the request


class _Key(NamedTuple):
    """Key of a search: plans with equal keys have the same answer."""

    estimate: Hashable  # equal: layouts may be evaluated as one table
    layouts: Hashable  # equal: layouts of all global batches are enumerated at once
    batch: int


@dataclass(frozen=True)
class _Allowed:
    """The layouts of one plan: some rows of a space, which may hold other global batches too."""

    plan: Plan
    space: Space
    rows: Array
    most: float = np.inf  # seconds beyond which no layout is wanted

    @property
    def count(self) -> int:
        """Layouts."""
        return int(self.space.counts[self.rows].sum())


@dataclass(frozen=True)
class _Best:
    """The layout that a plan's own search would take."""

    plan: Plan
    table: Columns  # one row, with its global batch
    near: Columns  # layouts that may be better with other free options; see `software.listed`
    fits: bool
    rank: Rank  # of several plans the least is taken


def choose(requests: Sequence[Sequence[Plan]]) -> list[Chosen | PlanError | None]:
    """For each request (its plans, one per stack) the layout that an estimate would choose.

    None where the rules allow no layout, an error where the request cannot be evaluated; the others
    are answered all the same.
    """
    keys = _Keys()
    each = _searches([plan for plans in requests for plan in plans], keys)
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
    for request in searches:
        for search in request:
            search.drop_if_far(_best_of(request))
    for _ in range(ROUNDS):
        _improve(each, keys)
    found = [_answer(request) for request in searches]
    full = _full([one for one in found if isinstance(one, _Best)], keys)
    return [
        Chosen(next(full), one.fits, _count(request)) if isinstance(one, _Best) else one
        for request, one in zip(searches, found, strict=True)
    ]


def _searches(plans: Sequence[Plan], keys: _Keys) -> list[_Search]:
    """The searches of these plans, with the free options that are usually best."""
    spaces = _spaces([plan.choosing(plan.start) if plan.free else plan for plan in plans], keys)
    # a request that states its layout whole states kernels and overlap, too
    whole = [
        i
        for i, (plan, space) in enumerate(zip(plans, spaces, strict=True))
        if plan.free and isinstance(space, _Allowed) and space.count <= 1
    ]
    plain = _spaces([plans[i].choosing(()) for i in whole], keys)
    stated = dict(zip(whole, plain, strict=True))
    return [
        _Search(plan, stated.get(i, spaces[i]), bool(plan.free) and i not in stated)
        for i, plan in enumerate(plans)
    ]


def _spaces(plans: Sequence[Plan], keys: _Keys) -> list[_Allowed | PlanError]:
    """The layouts of each plan. Plans with equal keys share them and differ in prices."""
    of_keys = [(keys.of(plan), plan) for plan in plans]
    allowed = _enumerated(dict(of_keys))
    spaces = ((allowed[key], plan) for key, plan in of_keys)
    return [
        space if isinstance(space, PlanError) else dataclasses.replace(space, plan=plan)
        for space, plan in spaces
    ]


class _Search:
    """The search of one plan. space: its layouts, or why they cannot be listed; open: whether other
    free options may be tried; best: the layout that is best so far, None before any is known."""

    def __init__(self, plan: Plan, space: _Allowed | PlanError, is_open: bool) -> None:
        self.plan, self.space = plan, space
        self.best: _Best | PlanError | None = space if isinstance(space, PlanError) else None
        self.open = is_open
        self.looked: set[Layout] = set()  # whose free options are settled
        self.most = np.inf  # seconds beyond which a layout is far behind another plan's

    def drop_if_far(self, best: Rank | None) -> None:
        """Leave free options as they are where another plan of the request is far ahead."""
        self.most = wanted_s(self.plan, best)
        if isinstance(self.best, _Best) and best is not None:
            self.open = self.open and not is_far(
                of_all(self.best.rank, self.best.plan), best, self.plan
            )

    def settling(self) -> Settling | None:
        """The layouts to look at with other free options; None where that was done."""
        if not self.open or not isinstance(self.best, _Best):
            return None
        if self.best.table.layout(0) in self.looked:
            self.open = False
            return None
        near = self.best.near
        self.looked |= {near.layout(i) for i in range(len(near))}
        return Settling(self.best.plan.chosen, near, self.best.rank)


def _run(searches: Sequence[tuple[_Search, Sequence[_Search]]], keys: _Keys) -> None:
    """The best layouts with the free options that are usually best, each beside the other searches
    of its request."""
    of_keys = []
    for search, request in searches:
        space = search.space
        if isinstance(space, _Allowed) and space.count:
            most = wanted_s(space.plan, _best_of(request))
            of_keys.append((keys.of(space.plan), search, dataclasses.replace(space, most=most)))
    best = _evaluated(_least_limited((key, start) for key, _, start in of_keys))
    for key, search, start in of_keys:
        if key in best:
            search.best = _of_plan(best[key], start.plan)


def _least_limited(spaces: Iterable[tuple[_Key, _Allowed]]) -> dict[_Key, _Allowed]:
    """Of equal plans, whose requests differ in their other stacks, the one that wants most."""
    out: dict[_Key, _Allowed] = {}
    for key, space in spaces:
        if key not in out or space.most > out[key].most:
            out[key] = space
    return out


def _best_of(request: Sequence[_Search]) -> Rank | None:
    """The best rank of a request's searches so far."""
    ranks = [of_all(one.best.rank, one.plan) for one in request if isinstance(one.best, _Best)]
    return min(ranks, default=None)


def _improve(searches: Sequence[_Search], keys: _Keys) -> None:
    """The best layouts with other free options, where these gain."""
    alike: dict[Hashable, list[tuple[_Search, Settling]]] = {}
    for search in searches:
        if (settling := search.settling()) is not None:
            alike.setdefault(keys.estimate(search.plan), []).append((search, settling))
    variants: list[tuple[_Key, _Search, Plan, float]] = []
    for members in alike.values():
        found = polished(members[0][0].plan, [settling for _, settling in members])
        for (search, settling), (choices, rank) in zip(members, found, strict=True):
            search.open = better(rank, settling.rank)
            if search.open:
                plan, most = search.plan.choosing(choices), min(search.most, near_s(rank))
                variants.append((keys.of(plan), search, plan, most))
    allowed = _enumerated({key: plan for key, _, plan, _ in variants})
    best = _evaluated(
        _least_limited(
            (key, dataclasses.replace(space, most=most))
            for key, _, _, most in variants
            if isinstance(space := allowed[key], _Allowed)
        )
    )
    for key, search, plan, _ in variants:
        again = best.get(key)
        search.open = isinstance(again, _Best) and better(again.rank, _rank(search))
        if search.open and again is not None:
            search.best = _of_plan(again, plan)


def _rank(search: _Search) -> Rank:
    assert isinstance(search.best, _Best)
    return search.best.rank


def _of_plan(best: _Best | PlanError, plan: Plan) -> _Best | PlanError:
    """A search of a plan with equal values, which may have other prices."""
    return best if isinstance(best, PlanError) else dataclasses.replace(best, plan=plan)


def _answer(request: Sequence[_Search]) -> _Best | PlanError | None:
    """The best over the plans of a request; an error of any of them is the request's."""
    errors = [search.best for search in request if isinstance(search.best, PlanError)]
    if errors:
        return errors[0]
    there = [search.best for search in request if isinstance(search.best, _Best)]
    return min(there, key=lambda one: of_all(one.rank, one.plan), default=None)


def _count(request: Sequence[_Search]) -> int:
    each = {(one.plan.stack.id, one.plan.request.zero): one.space for one in request}
    return sum(space.count for space in each.values() if isinstance(space, _Allowed))


# ------------------------------------------------------------------------------ what plans share


class _Keys:
    """Keys of plans. Specs with equal values have one number: quicker to compare than specs, which
    hold lists and cannot be keys themselves."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[Spec, int]] = {}
        self._by_value: dict[str, int] = {}

    def of(self, plan: Plan) -> _Key:
        """The key of a plan's search."""
        return _Key(self.estimate(plan), self._layouts(plan), plan.training.global_batch)

    def estimate(self, plan: Plan) -> Hashable:
        """Plans with equal values are evaluated as one table."""
        cluster = plan.cluster
        return (
            self._number(plan.model),
            self._number(plan.stack),
            self._fields("cluster", cluster),
            self._fields("training", plan.training),
            plan.mechanisms,
            cluster.gpus_per_host,
            cluster.nodes > 1,
            plan.request.pipeline_layout,
            plan.request.recompute,
            plan.request.offload,
            plan.request.search_offload,
            plan.request.headroom,
            self._ranks_and_data(plan),
        )

    def _ranks_and_data(self, plan: Plan) -> Hashable:
        """Key of straggler and data settings. The slowest of more ranks is slower, so that such
        plans share a table only with plans of as many GPUs."""
        specs = (plan.ranks, plan.lengths, plan.data)
        numbers = tuple(None if spec is None else self._number(spec) for spec in specs)
        usual = plan.ranks == RanksSpec() and plan.lengths is None and plan.data is None
        return numbers, None if usual else plan.cluster.gpus

    def _layouts(self, plan: Plan) -> Hashable:
        """Plans with equal values and global batches have the same layouts: GPUs of the same node
        do."""
        cluster = plan.cluster
        return (
            self._number(plan.model),
            self._number(plan.stack),
            self._number(plan.request),
            self._fields("training", plan.training),
            plan.mechanisms,
            cluster.gpus,
            cluster.gpus_per_node,
            cluster.nvlink_domain,
            cluster.gpu.architecture,
            cluster.nvme is not None,
        )

    def _number(self, spec: Spec) -> int:
        known = self._by_id.get(id(spec))
        if known is None:
            known = spec, self._by_value.setdefault(repr(spec), len(self._by_value))
            self._by_id[id(spec)] = known  # keeps the spec alive, so that its id stays its own
        return known[1]

    def _fields(self, name: str, spec: Spec) -> tuple[Hashable, ...]:
        """Fields of a spec that an estimate reads."""
        values = (getattr(spec, k) for k in type(spec).model_fields if k not in _APART[name])
        return tuple(self._number(v) if isinstance(v, Spec) else v for v in values)


# ------------------------------------------------------------------------ enumerate and evaluate


def _enumerated(plans: Mapping[_Key, Plan]) -> dict[_Key, _Allowed | PlanError]:
    """The layouts of each plan that the rules allow, or why they cannot be listed."""
    alike: dict[Hashable, list[_Key]] = {}
    for key in plans:
        alike.setdefault(key.layouts, []).append(key)
    out: dict[_Key, _Allowed | PlanError] = {}
    for keys in alike.values():
        spaces = _by_batch(plans[keys[0]], sorted({key.batch for key in keys}))
        for key in keys:
            found = spaces[key.batch]
            out[key] = found if isinstance(found, PlanError) else _Allowed(plans[key], *found)
    return out


def _by_batch(plan: Plan, batches: Sequence[int]) -> dict[int, tuple[Space, Array] | PlanError]:
    """For each global batch the space that has its layouts, and their rows."""
    try:
        space = allowed_layouts(plan, batches)
    except PlanError as error:  # too many for one of them, or for all of them together
        if len(batches) == 1:
            return {batches[0]: error}
        return {batch: _by_batch(plan, [batch])[batch] for batch in batches}
    of_row = space.outer["global_batch"]
    order = np.argsort(of_row, kind="stable")
    parts = np.split(order, np.searchsorted(of_row[order], batches[1:]))
    return {batch: (space, rows) for batch, rows in zip(batches, parts, strict=True)}


def _evaluated(allowed: Mapping[_Key, _Allowed]) -> dict[_Key, _Best | PlanError]:
    """The best layout of each plan that has any."""
    alike: dict[Hashable, list[_Key]] = {}
    for key, one in allowed.items():
        if one.count:
            alike.setdefault(key.estimate, []).append(key)
    out: dict[_Key, _Best | PlanError] = {}
    for keys in alike.values():
        for block in _blocks(keys, allowed):
            try:
                bests = best_of_each([allowed[key] for key in block])
            except PlanError as error:  # a number that the plans of the block share
                out.update((key, error) for key in block)
            else:
                found = zip(block, bests, strict=True)
                out.update((key, best) for key, best in found if best is not None)
    return out


def _blocks(keys: Sequence[_Key], allowed: Mapping[_Key, _Allowed]) -> Iterator[list[_Key]]:
    """Plans in turn, about BLOCK layouts together."""
    block: list[_Key] = []
    count = 0
    for key in keys:
        if block and count + allowed[key].count > BLOCK:
            yield block
            block, count = [], 0
        block.append(key)
        count += allowed[key].count
    if block:
        yield block


def best_of_each(plans: Sequence[_Allowed]) -> list[_Best | None]:
    """The layout that each plan's own search would take; None where none is wanted. The plans
    differ in GPUs, global batch, price and length of the run, and all have layouts."""
    space, owner_of_row = _one_space(plans)
    near = NEAR if any(one.plan.chosen for one in plans) else 0.0
    most = np.array([one.most for one in plans])
    kept = pruned(plans[0].plan, space, groups=owner_of_row, most=most, near=near)
    found = kept.estimates
    if found is None:
        return [None] * len(plans)
    owner = owner_of_row[kept.rows][found.space.row]
    counts = np.bincount(owner, minlength=len(plans))
    parts = np.split(np.argsort(owner, kind="stable"), np.cumsum(counts)[:-1])
    out: list[_Best | None] = []
    for one, layouts in zip(plans, parts, strict=True):
        if not len(layouts):
            out.append(None)
            continue
        taken = choice(found, layouts)
        table = found.rows(np.array([taken.row]))
        others = listed(found, taken, layouts) if near else table
        out.append(_Best(one.plan, table, others, taken.fits, taken.rank))
    return out


def _one_space(plans: Sequence[_Allowed]) -> tuple[Space, Array]:
    """(the layouts of all plans as one space, in the order of each plan's own; of every row, the
    position of its plan)."""
    lengths = [len(plan.rows) for plan in plans]
    outer = {
        name: np.concatenate([plan.space.outer[name][plan.rows] for plan in plans])
        for name in plans[0].space.outer
    }
    starts = np.cumsum([0, *(len(plan.space.options) for plan in plans)])[:-1]
    patterns = [
        start + one.space.pattern[one.rows] for start, one in zip(starts, plans, strict=True)
    ]
    inner, options = _one_inner([plan.space for plan in plans])
    space = Space.of(outer, inner, options, np.concatenate(patterns))
    # few bits: numbers below 65,536 are sorted in linear time
    owner = np.repeat(np.arange(len(plans), dtype=np.min_scalar_type(len(plans))), lengths)
    return space, owner[space.source]


def _one_inner(spaces: Sequence[Space]) -> tuple[ByName, Array]:
    """(the options that any of these spaces has, which of them go together in the patterns of all):
    how layers may be recomputed depends on what else was enumerated."""
    tables = [np.column_stack([space.inner[name] for name in _ORDER]) for space in spaces]
    every, place = np.unique(np.concatenate(tables), axis=0, return_inverse=True)
    places = np.split(place.reshape(-1), np.cumsum([len(table) for table in tables])[:-1])
    out = []
    for space, at in zip(spaces, places, strict=True):
        options = np.zeros((len(space.options), len(every)), dtype=bool)
        options[:, at] = space.options
        out.append(options)
    return {name: every[:, i] for i, name in enumerate(_ORDER)}, np.concatenate(out)


# ------------------------------------------------------------------------------- the chosen rows


def _full(best: Sequence[_Best], keys: _Keys) -> Iterator[Estimates]:
    """Full estimates of the chosen rows, evaluated together where plans allow."""
    alike: dict[Hashable, list[int]] = {}
    for i, one in enumerate(best):
        alike.setdefault(keys.estimate(one.plan), []).append(i)
    out: dict[int, Estimates] = {}
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
    one: Estimates = dataclasses.replace(cut(bare, row, rows), plan=plan)
    return one
