"""The best layout of many requests at once.

What one layout takes does not depend on how many GPUs there are besides it, on other global batches
or on prices. Plans that differ only in these are one table: layouts are enumerated once for all
global batches and evaluated together, so that what the plans have in common is computed once. On
sweeps that is two to four times as fast as a search for each (benchmarks/sweep_rate.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.estimate import Estimates, cut, evaluate
from planner.estimate.factored import Space
from planner.ledger import Array
from planner.search import allowed_layouts
from planner.search.answer import searches
from planner.search.choose import choice, of_all
from planner.search.prune import pruned
from planner.specs.base import PlanError, Spec
from planner.specs.columns import ByName, Columns, joined
from planner.specs.plan import Plan, SoftwareChoice
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

    @property
    def count(self) -> int:
        """Layouts."""
        return int(self.space.counts[self.rows].sum())


@dataclass(frozen=True)
class _Best:
    """The layout that a plan's own search would take."""

    plan: Plan
    table: Columns  # one row, with its global batch
    fits: bool
    rank: tuple[int, float]  # of several plans the least is taken


def choose(requests: Sequence[Sequence[Plan]]) -> list[Chosen | PlanError | None]:
    """For each request (its plans, one per stack) the layout that an estimate would choose.

    None where the rules allow no layout, an error where the request cannot be evaluated; the others
    are answered all the same.
    """
    keys = _Keys()
    requests = _with_software(requests, keys)
    searched = [[(keys.of(plan), plan) for plan in plans] for plans in requests]
    plans = {key: plan for request in searched for key, plan in request}
    allowed = _enumerated(plans)
    best = _evaluated({key: one for key, one in allowed.items() if isinstance(one, _Allowed)})
    found = [_answer(request, allowed, best) for request in searched]
    full = _full([one for one in found if isinstance(one, _Best)], keys)
    return [
        Chosen(next(full), one.fits, _count(request, allowed)) if isinstance(one, _Best) else one
        for request, one in zip(searched, found, strict=True)
    ]


def _answer(
    request: Sequence[tuple[_Key, Plan]],
    allowed: Mapping[_Key, _Allowed | PlanError],
    best: Mapping[_Key, _Best | PlanError],
) -> _Best | PlanError | None:
    """The best over the plans of a request; an error of any of them is the request's."""
    there = [(best[key], plan) for key, plan in request if key in best]
    errors = [
        one
        for one in (*(allowed[key] for key, _ in request), *(one for one, _ in there))
        if isinstance(one, PlanError)
    ]
    if errors:
        return errors[0]
    own = [dataclasses.replace(one, plan=plan) for one, plan in there if isinstance(one, _Best)]
    return min(own, key=lambda one: of_all(one.rank, one.plan), default=None)


def _count(
    request: Sequence[tuple[_Key, Plan]], allowed: Mapping[_Key, _Allowed | PlanError]
) -> int:
    each = {(plan.stack.id, plan.request.zero): allowed[key] for key, plan in request}
    return sum(one.count for one in each.values() if isinstance(one, _Allowed))


def _with_software(requests: Sequence[Sequence[Plan]], keys: _Keys) -> list[list[Plan]]:
    """The plans of each request with the free options of their stacks that are best for some of the
    requests that differ only in GPUs, batch and prices: the first, the middle and the last."""
    alike: dict[Hashable, list[int]] = {}
    for i, plans in enumerate(requests):
        if any(plan.free for plan in plans):
            alike.setdefault(tuple(keys.estimate(plan) for plan in plans), []).append(i)
    out = [list(plans) for plans in requests]
    for members in alike.values():
        examples = sorted({members[0], members[len(members) // 2], members[-1]})
        found = []
        for i in examples:
            with contextlib.suppress(PlanError):  # which its own search answers with
                found.append(searches(requests[i]))
        for i in members:
            out[i] = [
                plan.choosing(chosen)
                for place, plan in enumerate(requests[i])
                for chosen in _distinct([each[place].plan.chosen for each in found] or [()])
            ]
    return out


def _distinct(choices: Sequence[tuple[SoftwareChoice, ...]]) -> list[tuple[SoftwareChoice, ...]]:
    """Each set of options once."""
    return list({repr(sorted(map(repr, one))): one for one in choices}.values())


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
                out.update(zip(block, bests, strict=True))
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


def best_of_each(plans: Sequence[_Allowed]) -> list[_Best]:
    """The layout that each plan's own search would take. The plans differ in GPUs, global batch,
    price and length of the run, and all have layouts."""
    space, owner_of_row = _one_space(plans)
    kept = pruned(plans[0].plan, space, groups=owner_of_row)
    found = kept.estimates
    assert found is not None  # no limit was given
    owner = owner_of_row[kept.rows][found.space.row]
    parts = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1])
    out = []
    for one, layouts in zip(plans, parts, strict=True):
        taken = choice(found, layouts)
        out.append(_Best(one.plan, found.rows(np.array([taken.row])), taken.fits, taken.rank))
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
