"""Many requests answered together: the fastest layout that fits of each, as `search` finds it, at a fraction of the work.

Plans that differ only in the number of GPUs, the global batch, the length of the run or the price are one table: the estimate of
a layout does not depend on them otherwise. Of each request's layouts the times are computed first; memory only of the fastest,
until one fits and none that ties with it is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.estimate import Estimates, evaluate, fit, outline
from planner.estimate.factored import Space
from planner.estimate.memory import peak_memory
from planner.estimate.step import step_time
from planner.estimate.table import COLUMNS, Table, length, pick
from planner.estimate.ties import TIE, fastest
from planner.search import allowed_layouts, smallest
from planner.search import best as fastest_row
from planner.specs.base import PlanError, Spec
from planner.specs.plan import Plan

LARGE = 4096  # layouts of a plan beyond which its own factored search is quicker than a place in a shared table
BLOCK = 16384  # rows evaluated together: larger tables leave the processor's caches
_FIRST = 32  # fastest layouts of a plan whose memory is looked at first
_MORE = 8  # and so many times more in each further round

# fields that enumerate or rank layouts, or price a run, but do not change what one layout takes
_APART: dict[str, frozenset[str]] = {
    "cluster": frozenset({"gpus", "title", "usd_per_gpu_hour"}),
    "training": frozenset({"global_batch", "tokens"}),
}


@dataclass(frozen=True)
class Chosen:
    """The layout taken for one request: a table of one row."""

    estimates: Estimates
    fits: bool
    layouts: int  # that the rules allow, over all plans of the request


@dataclass(frozen=True)
class _Owner:
    """The allowed layouts of a plan, and the requests that have it: they may differ in price and length of the run."""

    asked: list[tuple[int, Plan]]
    table: Table  # with a column global_batch

    @property
    def plan(self) -> Plan:
        return self.asked[0][1]


@dataclass(frozen=True)
class _Best:
    """The row of an owner that is taken, and what ranks it."""

    fits: bool
    rank: float  # seconds if it fits, else bytes
    owner: _Owner
    plan: Plan  # of the request it is taken for
    row: int


class _Same:
    """Numbers for specs with equal values: quicker to compare than specs, which hold lists and cannot be keys themselves."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[Spec, int]] = {}
        self._by_value: dict[str, int] = {}

    def number(self, spec: Spec) -> int:
        known = self._by_id.get(id(spec))
        if known is None:
            known = spec, self._by_value.setdefault(repr(spec), len(self._by_value))
            self._by_id[id(spec)] = known  # keeps the spec alive, so that its id stays its own
        return known[1]

    def fields(self, name: str, spec: Spec) -> tuple[Hashable, ...]:
        """What an estimate reads of a spec."""
        apart = _APART[name]
        values = (getattr(spec, k) for k in type(spec).model_fields if k not in apart)
        return tuple(self.number(v) if isinstance(v, Spec) else v for v in values)


def choose(requests: Sequence[Sequence[Plan]]) -> list[Chosen | PlanError | None]:
    """For each request (its plans, one per stack) the layout that an estimate would choose.

    None where the rules allow no layout, an error where the request cannot be evaluated; the others are answered all the same.
    """
    same = _Same()
    groups: dict[Hashable, dict[Hashable, _Owner]] = {}
    alone: dict[Hashable, tuple[_Best, int]] = {}  # plans with many layouts, and how many
    errors: dict[int, PlanError] = {}
    allowed = [0] * len(requests)
    tables: dict[Hashable, Table | None] = {}
    best: list[_Best | None] = [None] * len(requests)

    def take(i: int, one: _Best, plan: Plan) -> None:
        old = best[i]
        if old is None or (not one.fits, one.rank) < (not old.fits, old.rank):
            best[i] = dataclasses.replace(one, plan=plan)

    for i, plans in enumerate(requests):
        for plan in plans:
            alike, which = _alike(plan, same), _layouts_of(plan, same)
            try:
                if which not in tables:
                    space = allowed_layouts(plan)
                    tables[which] = _plain(space) if space.count <= LARGE else None
                table = tables[which]
                if table is None:
                    if (alike, which) not in alone:
                        alone[alike, which] = _of_many(plan, allowed_layouts(plan))
                    found, count = alone[alike, which]
                    take(i, found, plan)
                    allowed[i] += count
                    continue
            except PlanError as error:
                errors[i] = error
                continue
            if not length(table):
                continue
            owners = groups.setdefault(alike, {})
            if which not in owners:
                batch = np.full(length(table), float(plan.training.global_batch))
                owners[which] = _Owner([], {**table, "global_batch": batch})
            owners[which].asked.append((i, plan))
            allowed[i] += length(table)
    for owners in groups.values():
        for block in _blocks(list(owners.values())):
            try:
                chosen = _best(block)
            except PlanError as error:  # a number that the plans of the block share
                errors.update((i, error) for owner in block for i, _ in owner.asked)
                continue
            for one in chosen:
                for i, plan in one.owner.asked:
                    take(i, one, plan)
    rows = _rows([None if i in errors else one for i, one in enumerate(best)], allowed, same)
    return [errors.get(i, one) for i, one in enumerate(rows)]


def _plain(space: Space) -> Table:
    found = space.flat()
    return {name: found[name] for name in COLUMNS}


def _of_many(plan: Plan, space: Space) -> tuple[_Best, int]:
    """The row that the plan's own search takes, where its layouts are too many to share a table with others; and their number."""
    found = outline(plan, space)
    row = fastest_row(found)
    fits = row is not None
    at = smallest(found) if row is None else row
    table = found.rows(np.array([at]))
    owner = _Owner([(0, plan)], {**table, "global_batch": np.full(1, float(plan.training.global_batch))})
    return _Best(fits, float((found.time.seconds if fits else found.memory.device)[at]), owner, plan, 0), space.count


def _alike(plan: Plan, same: _Same) -> Hashable:
    """Plans with equal keys are evaluated as one table."""
    cluster = plan.cluster
    return (
        same.number(plan.model), same.number(plan.stack), same.fields("cluster", cluster), same.fields("training", plan.training),
        min(cluster.gpus, cluster.gpus_per_node), cluster.nodes > 1, plan.request.uneven_stages,
    )  # fmt: skip


def _layouts_of(plan: Plan, same: _Same) -> Hashable:
    """Plans with equal keys have the same layouts: GPUs of the same node do."""
    cluster = plan.cluster
    return (
        same.number(plan.model), same.number(plan.stack), same.number(plan.request), same.fields("training", plan.training),
        plan.training.global_batch, cluster.gpus, cluster.gpus_per_node, cluster.nvlink_domain, cluster.gpu.architecture,
    )  # fmt: skip


def _blocks(owners: Sequence[_Owner]) -> Iterator[list[_Owner]]:
    """Owners in turn, about BLOCK rows together."""
    block: list[_Owner] = []
    rows = 0
    for owner in owners:
        if block and rows + length(owner.table) > BLOCK:
            yield block
            block, rows = [], 0
        block.append(owner)
        rows += length(owner.table)
    if block:
        yield block


def _joined(tables: Sequence[Table]) -> Table:
    return tables[0] if len(tables) == 1 else {name: np.concatenate([t[name] for t in tables]) for name in tables[0]}


def _best(block: Sequence[_Owner]) -> list[_Best]:
    """The row that each owner's own search would take."""
    plan, table = block[0].plan, _joined([owner.table for owner in block])
    time = step_time(plan, table)
    seconds = time.seconds
    repeated = time.components["recompute"] + np.zeros(len(seconds))
    ends = np.cumsum([length(owner.table) for owner in block])
    parts = [slice(int(end) - length(owner.table), int(end)) for owner, end in zip(block, ends, strict=True)]
    orders = [part.start + np.argsort(seconds[part], kind="stable") for part in parts]
    fits, device = np.zeros(len(seconds), dtype=bool), np.full(len(seconds), np.inf)
    seen, goal = [0] * len(block), [_FIRST] * len(block)
    while rows := [orders[k][seen[k] : goal[k]] for k in range(len(block)) if seen[k] < min(goal[k], len(orders[k]))]:
        which = np.concatenate(rows)
        memory = peak_memory(plan, pick(table, which))
        fits[which], device[which] = fit(plan, memory)[0], memory.device
        for k, order in enumerate(orders):
            seen[k] = min(goal[k], len(order))
            fitting = order[: seen[k]][fits[order[: seen[k]]]]
            if not len(fitting):
                goal[k] = min(len(order), _MORE * goal[k])
                continue
            tied = int(np.searchsorted(seconds[order], seconds[fitting[0]] * (1 + TIE), side="right"))
            goal[k] = max(seen[k], tied)
    out = []
    for owner, part in zip(block, parts, strict=True):
        usable = fits[part]
        if usable.any():
            row = fastest(np.where(usable, seconds[part], np.inf), repeated[part], device[part])
            out.append(_Best(True, float(seconds[part][row]), owner, owner.plan, row))
        else:
            row = int(device[part].argmin())
            out.append(_Best(False, float(device[part][row]), owner, owner.plan, row))
    return out


def _rows(best: Sequence[_Best | None], allowed: Sequence[int], same: _Same) -> list[Chosen | None]:
    """Full estimates of the chosen rows, evaluated together where plans allow, taken apart afterwards."""
    out: list[Chosen | None] = [None] * len(best)
    groups: dict[Hashable, list[tuple[int, _Best]]] = {}
    for i, one in enumerate(best):
        if one is not None:
            groups.setdefault(_alike(one.plan, same), []).append((i, one))
    for members in groups.values():
        for start in range(0, len(members), BLOCK):
            part = members[start : start + BLOCK]
            table = _joined([pick(one.owner.table, np.array([one.row])) for _, one in part])
            whole = evaluate(part[0][1].plan, table)
            for row, (i, one) in enumerate(part):
                out[i] = Chosen(one_row(whole, row, one.plan), one.fits, allowed[i])
    return out


def one_row(estimates: Estimates, row: int, plan: Plan) -> Estimates:
    """One layout's share of estimates of many, as estimates of `plan`, without the parts of its memory.

    The table keeps COLUMNS alone; `report.evaluate_row` looks at every stage again where that is asked for.
    """
    rows = length(estimates.table)
    time = dataclasses.replace(estimates.time, detail={})
    memory = dataclasses.replace(estimates.memory, components={}, stage_components=[], timeline=[])
    bare = dataclasses.replace(estimates, time=time, memory=memory, table={k: estimates.table[k] for k in COLUMNS})
    cut: Estimates = dataclasses.replace(_cut(bare, row, rows), plan=plan)
    return cut


def _cut(value: Any, row: int, rows: int) -> Any:
    """The same record with one value where there were `rows`: the last axis of every array."""
    if isinstance(value, np.ndarray):
        return value[..., row : row + 1] if value.ndim and value.shape[-1] == rows else value
    if isinstance(value, dict):
        return {k: _cut(v, row, rows) for k, v in value.items()}
    if isinstance(value, list | tuple):
        made = [_cut(v, row, rows) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{f.name: _cut(getattr(value, f.name), row, rows) for f in dataclasses.fields(value)})
    return value
