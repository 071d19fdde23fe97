"""Many requests answered together: the fastest layout that fits of each, as `search` finds it, at a
fraction of the work.

Plans that differ only in the number of GPUs, the global batch, the length of the run or the price
are one table: the estimate of a layout does not depend on them otherwise (search/together.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.estimate import Estimates, cut, evaluate
from planner.search import allowed_layouts
from planner.search.together import Best, Owner, best_of_each
from planner.specs.base import PlanError, Spec
from planner.specs.columns import joined
from planner.specs.plan import Plan
from planner.specs.ranks import RanksSpec

BLOCK = 131072  # rows evaluated together

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


@dataclass
class _Family:
    """Plans whose layouts are enumerated together: they differ in the global batch, and in what no
    layout depends on."""

    plan: Plan
    owners: dict[int, list[Owner]] = field(default_factory=dict)  # by batch; their speed may differ

    def enumerate(self) -> None:
        """Give every owner the layouts of its batch, or the reason why it has none."""
        batches = sorted(self.owners)
        try:
            self._give(batches)
        except PlanError:  # too many for one of them, or for all of them together
            for batch in batches:
                try:
                    self._give([batch])
                except PlanError as error:
                    for owner in self.owners[batch]:
                        owner.error = error

    def _give(self, batches: Sequence[int]) -> None:
        space = allowed_layouts(self.plan, batches)
        if not space.count:
            return
        which = space.outer["global_batch"]
        order = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[order], batches, side="right")
        for batch, start, end in zip(batches, [0, *ends[:-1]], ends, strict=True):
            for owner in self.owners[batch]:
                owner.space, owner.rows = space, order[start:end]


class _Same:
    """Numbers for specs with equal values: quicker to compare than specs, which hold lists and
    cannot be keys themselves."""

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

    None where the rules allow no layout, an error where the request cannot be evaluated; the others
    are answered all the same.
    """
    same = _Same()
    families: dict[Hashable, _Family] = {}
    groups: dict[Hashable, dict[Hashable, Owner]] = {}
    errors: dict[int, PlanError] = {}
    allowed = [0] * len(requests)
    best: list[tuple[Best, Plan] | None] = [None] * len(requests)
    for i, plans in enumerate(requests):
        for plan in plans:
            which, batch = _layouts_of(plan, same), plan.training.global_batch
            owners = groups.setdefault(_alike(plan, same), {})
            if (which, batch) not in owners:
                owners[which, batch] = owner = Owner(plan)
                families.setdefault(which, _Family(plan)).owners.setdefault(batch, []).append(owner)
            owners[which, batch].asked.append((i, plan))
    for family in families.values():
        family.enumerate()
    for owners in groups.values():
        for owner in owners.values():
            for i, _ in owner.asked:
                allowed[i] += owner.count
                if owner.error is not None:
                    errors[i] = owner.error
        for block in _blocks([owner for owner in owners.values() if owner.count]):
            try:
                found = best_of_each(block)
            except PlanError as error:  # a number that the plans of the block share
                errors.update((i, error) for owner in block for i, _ in owner.asked)
                continue
            for owner, one in zip(block, found, strict=True):
                for i, plan in owner.asked:
                    old = best[i]
                    if old is None or (not one.fits, one.rank) < (not old[0].fits, old[0].rank):
                        best[i] = one, plan
    rows = _rows([None if i in errors else one for i, one in enumerate(best)], allowed, same)
    return [errors.get(i, one) for i, one in enumerate(rows)]


def _alike(plan: Plan, same: _Same) -> Hashable:
    """Plans with equal keys are evaluated as one table."""
    cluster = plan.cluster
    return (
        same.number(plan.model),
        same.number(plan.stack),
        same.fields("cluster", cluster),
        same.fields("training", plan.training),
        cluster.gpus_per_host,
        cluster.nodes > 1,
        plan.request.uneven_stages,
        plan.request.recompute,
        plan.request.offload,
        plan.request.search_offload,
        _conditions(plan, same),
    )


def _conditions(plan: Plan, same: _Same) -> Hashable:
    """How ranks differ and what is read: such plans share a table with those of as many GPUs only,
    whose slowest is as late."""
    told = tuple(
        None if one is None else same.number(one) for one in (plan.ranks, plan.lengths, plan.data)
    )
    usual = plan.ranks == RanksSpec() and plan.lengths is None and plan.data is None
    return told, None if usual else plan.cluster.gpus


def _layouts_of(plan: Plan, same: _Same) -> Hashable:
    """Plans with equal keys and batches have the same layouts: GPUs of the same node do."""
    cluster = plan.cluster
    return (
        same.number(plan.model),
        same.number(plan.stack),
        same.number(plan.request),
        same.fields("training", plan.training),
        cluster.gpus,
        cluster.gpus_per_node,
        cluster.nvlink_domain,
        cluster.gpu.architecture,
        cluster.nvme is not None,
    )


def _blocks(owners: Sequence[Owner]) -> Iterator[list[Owner]]:
    """Owners in turn, about BLOCK rows together."""
    block: list[Owner] = []
    rows = 0
    for owner in owners:
        if block and rows + len(owner.rows) > BLOCK:
            yield block
            block, rows = [], 0
        block.append(owner)
        rows += len(owner.rows)
    if block:
        yield block


def _rows(
    best: Sequence[tuple[Best, Plan] | None], allowed: Sequence[int], same: _Same
) -> list[Chosen | None]:
    """Full estimates of the chosen rows, evaluated together where plans allow, taken apart
    afterwards."""
    out: list[Chosen | None] = [None] * len(best)
    groups: dict[Hashable, list[tuple[int, Best, Plan]]] = {}
    for i, found in enumerate(best):
        if found is not None:
            groups.setdefault(_alike(found[1], same), []).append((i, *found))
    for members in groups.values():
        for start in range(0, len(members), BLOCK):
            part = members[start : start + BLOCK]
            whole = evaluate(part[0][2], joined([one.table for _, one, _ in part]))
            for row, (i, one, plan) in enumerate(part):
                out[i] = Chosen(one_row(whole, row, plan), one.fits, allowed[i])
    return out


def one_row(estimates: Estimates, row: int, plan: Plan) -> Estimates:
    """One layout's share of estimates of many, as estimates of `plan`, without the parts of its
    memory.

    The table has no global batches of its own; `report.evaluate_row` looks at every stage again
    where that is asked for.
    """
    rows = len(estimates.table)
    time = dataclasses.replace(estimates.time, detail={})
    memory = dataclasses.replace(estimates.memory, components={}, stage_components=[], timeline=[])
    table = dataclasses.replace(estimates.table, global_batch=None)
    bare = dataclasses.replace(estimates, time=time, memory=memory, table=table)
    one: Estimates = dataclasses.replace(cut(bare, row, rows), plan=plan)
    return one
