"""Plans that are enumerated and evaluated as one table: those that differ in GPUs, global batch and
prices."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.estimate import Estimates
from planner.estimate.factored import Space
from planner.ledger import Array
from planner.search import allowed_layouts
from planner.search.choose import choice
from planner.search.prune import pruned
from planner.search.software import NEAR, Listed, Rank, listed
from planner.specs.base import PlanError, Spec
from planner.specs.columns import ByName, Columns
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


class Key(NamedTuple):
    """Key of a search: plans with equal keys have the same answer."""

    estimate: Hashable  # equal: layouts may be evaluated as one table
    layouts: Hashable  # equal: layouts of all global batches are enumerated at once
    batch: int


@dataclass(frozen=True)
class Allowed:
    """The layouts of one plan: some rows of a space, which may hold other global batches too."""

    plan: Plan
    space: Space
    rows: Array
    most: float = np.inf  # seconds beyond which no layout is wanted
    open: bool = True  # whether other free options may be tried

    @property
    def count(self) -> int:
        """Layouts."""
        return int(self.space.counts[self.rows].sum())

    @property
    def as_space(self) -> Space:
        """The allowed layouts as a space."""
        outer = {name: column[self.rows] for name, column in self.space.outer.items()}
        pattern = self.space.pattern[self.rows]
        return Space.of(outer, self.space.inner, self.space.options, pattern)


@dataclass(frozen=True)
class Best:
    """The layout that a plan's own search would take."""

    plan: Plan
    table: Columns  # one row, with its global batch
    # layouts that may be better with other free options, see `software.listed`; None: none is tried
    near: Listed | None
    fits: bool
    evaluated: int  # layouts
    rank: Rank  # of several plans the least is taken
    known: Estimates | None  # in full, where it is the only layout


# ------------------------------------------------------------------------------ what plans share


class Keys:
    """Keys of plans. Specs with equal values have one number: quicker to compare than specs, which
    hold lists and cannot be keys themselves."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[Spec, int]] = {}
        self._by_value: dict[str, int] = {}

    def of(self, plan: Plan) -> Key:
        """The key of a plan's search."""
        return Key(self.estimate(plan), self._layouts(plan), plan.training.global_batch)

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


def enumerated(plans: Mapping[Key, Plan]) -> dict[Key, Allowed | PlanError]:
    """The layouts of each plan that the rules allow, or why they cannot be listed."""
    alike: dict[Hashable, list[Key]] = {}
    for key in plans:
        alike.setdefault(key.layouts, []).append(key)
    out: dict[Key, Allowed | PlanError] = {}
    for keys in alike.values():
        spaces = _by_batch(plans[keys[0]], sorted({key.batch for key in keys}))
        for key in keys:
            space = spaces[key.batch]
            out[key] = space if isinstance(space, PlanError) else Allowed(plans[key], *space)
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


def evaluated(allowed: Mapping[Key, Allowed]) -> dict[Key, Best | PlanError]:
    """The best layout of each plan that has any."""
    alike: dict[Hashable, list[Key]] = {}
    for key, value in allowed.items():
        if value.count:
            alike.setdefault(key.estimate, []).append(key)
    out: dict[Key, Best | PlanError] = {}
    for keys in alike.values():
        for block in _blocks(keys, allowed):
            try:
                bests = best_of_each([allowed[key] for key in block])
            except PlanError as error:  # a number that the plans of the block share
                out.update((key, error) for key in block)
            else:
                result = zip(block, bests, strict=True)
                out.update((key, best) for key, best in result if best is not None)
    return out


def _blocks(keys: Sequence[Key], allowed: Mapping[Key, Allowed]) -> Iterator[list[Key]]:
    """Plans in turn, about BLOCK layouts together."""
    block: list[Key] = []
    count = 0
    for key in keys:
        if block and count + allowed[key].count > BLOCK:
            yield block
            block, count = [], 0
        block.append(key)
        count += allowed[key].count
    if block:
        yield block


def best_of_each(plans: Sequence[Allowed]) -> list[Best | None]:
    """The layout that each plan's own search would take; None where none is wanted. The plans
    differ in GPUs, global batch, price and length of the run, and all have layouts."""
    space, owner_of_row = one_space(plans)
    near = NEAR if any(each.plan.chosen for each in plans) else 0.0
    most = np.array([each.most for each in plans])
    kept = pruned(plans[0].plan, space, groups=owner_of_row, most=most, near=near)
    estimates = kept.estimates
    if estimates is None:
        return [None] * len(plans)
    owner = owner_of_row[kept.rows][estimates.space.row]
    known = estimates.evaluated if estimates.space.count == 1 else None
    counts = np.bincount(owner, minlength=len(plans))
    parts = np.split(np.argsort(owner, kind="stable"), np.cumsum(counts)[:-1])
    out: list[Best | None] = []
    for each, layouts in zip(plans, parts, strict=True):
        if not len(layouts):
            out.append(None)
            continue
        taken = choice(estimates, layouts)
        table = estimates.rows(np.array([taken.row]))
        others = listed(estimates, taken, layouts) if each.open else None
        out.append(Best(each.plan, table, others, taken.fits, len(layouts), taken.rank, known))
    return out


def one_space(plans: Sequence[Allowed]) -> tuple[Space, Array]:
    """(the layouts of all plans as one space, in the order of each plan's own; of every row, the
    position of its plan)."""
    lengths = [len(plan.rows) for plan in plans]
    outer = {
        name: np.concatenate([plan.space.outer[name][plan.rows] for plan in plans])
        for name in plans[0].space.outer
    }
    starts = np.cumsum([0, *(len(plan.space.options) for plan in plans)])[:-1]
    patterns = [
        start + plan.space.pattern[plan.rows] for start, plan in zip(starts, plans, strict=True)
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
