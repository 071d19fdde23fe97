"""Changes evaluated: which of them are valid plans, the memory they need and their step time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from planner.advise.changes import Change, Update, completed, difference, fixed_layout, pairs
from planner.estimate import Estimates, evaluate
from planner.formulas.rules import check
from planner.formulas.stages import largest_chunk
from planner.inputs.scenario import Scenario, resolve
from planner.ledger import Array
from planner.search import where
from planner.search.batched import Chosen, choose
from planner.search.pick import pick, software_of
from planner.search.room import room
from planner.specs.base import PlanError
from planner.specs.capabilities import has
from planner.specs.columns import Columns
from planner.specs.layout import Layout, recompute_in
from planner.specs.options import Options
from planner.specs.plan import Plan
from planner.specs.where import constraint

Kind = Literal["keep", "search"]


@dataclass(frozen=True)
class Weighed:
    """One evaluated change: `options` ask for exactly this plan ("keep"), or for the search that
    found it ("search")."""

    text: str
    kind: Kind
    options: Options
    update: dict[str, Any]  # options that were changed; what only follows from them is left out
    estimates: Estimates
    row: int
    changes: int = 1  # how many things were changed together

    @property
    def fits(self) -> bool:
        return bool(self.estimates.fits[self.row])

    @property
    def has_room(self) -> bool:
        """Whether it fits and leaves the room that is wanted."""
        return self.fits and bool(room(self.estimates, np.array([self.row])).enough[0])

    @property
    def seconds(self) -> float:
        return float(self.estimates.time.seconds[self.row])

    @property
    def device_bytes(self) -> float:
        return float(self.estimates.memory.device[self.row])

    @property
    def tokens_per_s(self) -> float:
        training = self.estimates.plan.training
        return training.global_batch * training.seq_len / self.seconds


@dataclass(frozen=True)
class Base:
    """The plan that is changed, its layout, and the request as the user made it."""

    scenario: Scenario
    plan: Plan
    layout: Layout

    @property
    def options(self) -> Options:
        """The user's request, without options that only concern its output. Its batch is fixed to
        the plan's even if the request left it open, since defaults of the batch depend on values
        that may change."""
        batch = self.plan.training.global_batch
        return self.scenario.options.changed(advice=None, global_batch=batch)


def allowed(plan: Plan, candidates: Sequence[Layout]) -> tuple[Columns, Array]:
    """Columns of the layouts that no rule forbids, and their indices."""
    table = Columns.of(candidates)
    kept = np.flatnonzero(np.logical_and.reduce(list(check(plan, table).values())))
    return table.pick(kept), kept


def one_change(base: Base, changes: list[list[Update]]) -> list[Weighed]:
    """The best variant of each change of the layout: the fastest with room enough, else that fits,
    else the one that needs the least memory."""
    listed = ((i, update) for i, variants in enumerate(changes) for update in variants)
    return _best_of_each(base, base.plan, base.options, "", {}, listed)


def two_changes(base: Base, changes: list[list[Update]]) -> list[Weighed]:
    """The best variant of every two changes of the layout together that fits."""
    listed = ((i * len(changes) + j, update) for i, j, update in pairs(changes))
    return [
        replace(w, changes=2)
        for w in _best_of_each(base, base.plan, base.options, "", {}, listed)
        if w.fits
    ]


def beside_the_layout(
    base: Base, change: Change, changes: list[list[Update]] | None = None
) -> list[Weighed]:
    """The current layout under a changed request, first; with `changes` also each change of the
    layout under it."""
    try:
        # what the search chose of the stack stays, unless it is what changes
        chosen = {choice.option: choice.value for choice in software_of(base.plan, base.layout)}
        changed = base.options.changed(**{**chosen, **change.update})
        options = pick(base.options, base.plan, base.layout).changed(**change.update)
        plan = resolve(options).plans[0]
    except PlanError:  # beyond an option's bounds, not sold, or not allowed by the model
        return []
    listed: list[tuple[int, Update]] = [(-1, {})]
    listed += [(i, update) for i, variants in enumerate(changes or ()) for update in variants]
    candidates = _best_of_each(base, plan, changed, change.text, change.update, listed)
    return [
        replace(w, changes=1 if w.update.keys() == change.update.keys() else 2) for w in candidates
    ]


def _best_of_each(
    base: Base,
    plan: Plan,
    options: Options,
    text: str,
    change: dict[str, Any],
    listed: Iterable[tuple[int, Update]],
) -> list[Weighed]:
    """Evaluate all variants in one table; per group the best of them."""
    groups: list[int] = []
    updates: list[Update] = []
    candidates: list[Layout] = []
    for group, update in listed:
        layout = completed(
            base.layout, update, plan.cluster.gpus, has(plan.stack, "sequence_parallel")
        )
        if layout is not None:
            largest = largest_chunk(plan, layout.pp, layout.vpp)
            name = recompute_in(layout.recompute, largest)
            layout = layout.model_copy(update={"recompute": name})
            groups.append(group)
            updates.append(update)
            candidates.append(layout)
    if not candidates:
        return []
    table, kept = _wanted(base, *allowed(plan, candidates))
    if not len(table):
        return []
    estimates = evaluate(plan, table)
    # what fits with enough room comes first, then what fits, by time
    enough = room(estimates, np.arange(len(table))).enough
    need = np.where(estimates.fits, np.where(enough, 0.0, 1.0), estimates.memory.device)
    order = np.lexsort((estimates.time.seconds, need))
    out: dict[int, Weighed] = {}
    for row in order.tolist():
        group, layout = groups[kept[row]], candidates[kept[row]]
        if group in out:
            continue
        layout_text = difference(base.layout, layout, fixed_layout(base.options))
        words = ", ".join(word for word in (text, layout_text) if word)
        whole = {**change, **updates[kept[row]]}
        out[group] = Weighed(words, "keep", pick(options, plan, layout), whole, estimates, row)
    return [out[group] for group in sorted(out)]


def _wanted(base: Base, table: Columns, kept: Array) -> tuple[Columns, Array]:
    """The rows that satisfy the conditions of the request, and their indices."""
    wanted = np.ones(len(table), dtype=bool)
    for text in base.plan.request.where:
        wanted &= where.holds(base.plan, constraint(text), table)
    rows = np.flatnonzero(wanted)
    return table.pick(rows), kept[rows]


def searched(
    base: Base, changes: Sequence[Change], least_tokens_per_s: float = 0.0
) -> list[Weighed]:
    """The fastest layout that fits each changed request; changes without any, or with none that
    trains this many tokens per second, are left out."""
    requests: list[tuple[Change, Options, tuple[Plan, ...]]] = []
    for change in changes:
        try:
            options = base.options.changed(**change.update)
            requests.append((change, options, resolve(options).plans))
        except PlanError:  # beyond an option's bounds, or not possible
            continue
    each = [plans for _, _, plans in requests]
    most = [_most_s(plans, least_tokens_per_s) for plans in each]
    return [
        Weighed(change.text, "search", options, change.update, chosen.estimates, 0)
        for (change, options, _), chosen in zip(requests, choose(each, most), strict=True)
        if isinstance(chosen, Chosen) and chosen.fits
    ]


def _most_s(plans: Sequence[Plan], least_tokens_per_s: float) -> float:
    """Seconds of a step per sequence with which as many tokens are trained per second."""
    seq_len = max((plan.training.seq_len for plan in plans), default=0)
    return seq_len / least_tokens_per_s if least_tokens_per_s else np.inf


def first_that_fit(base: Base, changes: Iterable[Change], enough: float) -> Iterator[Weighed]:
    """Searches one after the other until `enough` of them found something that fits."""
    fitting = 0
    for change in changes:
        for candidate in searched(base, [change]):
            yield candidate
            fitting += 1
        if fitting >= enough:
            return
