"""Free options of a stack, which a search settles: kernels, overlap, dispatch (`Plan.free`).

They multiply the space, so they are not crossed with it. The layouts are searched with the values
that are usually best (`Plan.start`, `probed`), and where work is repeated for want of memory with
the value that saves most of it (`roomier`). Then the best layouts are looked at with one option
changed at a time, memory included, each change that gains is kept, and the layouts are searched
again with what was kept. tests/test_software.py compares with every combination of options and
layouts of small spaces.

The choice depends on the plan only: it is the same for one request, in a sweep and in advice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from planner.estimate import Estimates, Outline, fit
from planner.estimate.factored import Space
from planner.estimate.memory import peak_memory
from planner.estimate.step import step_time
from planner.formulas.rules import check
from planner.formulas.rules.stack import ACTS
from planner.ledger import Array
from planner.search.choose import ENOUGH, Choice, Rank, choice
from planner.search.prune import least_of_rows, least_repeated
from planner.specs.columns import Columns, joined
from planner.specs.plan import Plan, SoftwareChoice

# relative: layouts that are slower than the best by less may be the best with other options
NEAR = 0.1
_LISTED = 16  # layouts that are looked at: of those that fit, of all, that need least memory
# shares of a device that layouts need: the fastest of each are looked at, since options make room
_NEEDS = (1.0, 1.1, np.inf)
_REACH = 1.5  # share of a device beyond which no option makes room
_KINDS = ("tp", "cp", "ep")  # the fastest of each kind that fits is looked at, too
_SMALL = 2  # micro-batches of layouts that are probed
_GAIN = 5e-4  # relative, of seconds: what gains less is not worth an option
_ROUNDING = 1e-6  # relative, of chances and bytes
# share of a GPU's memory that another value has to save for a search with it
_ROOMIER = 0.05
_FORBIDDEN = (np.inf, np.inf)

Choices = tuple[SoftwareChoice, ...]
_State = dict[str, SoftwareChoice]  # by option; one that is not in it is as the stack has it


@dataclass(frozen=True)
class Settling:
    """The best layouts of a request, the free options that they were searched with, and the rank of
    the best of them."""

    choices: Choices
    table: Columns
    rank: Rank


def acts(option: str, table: Columns) -> bool:
    """Whether an option does something in some of these layouts."""
    return option not in ACTS or bool(np.any(ACTS[option](table)))


def probed(plan: Plan, spaces: Sequence[Space]) -> list[Choices]:
    """For each request (its layouts) the free options to begin with: those that are usually best,
    and of an option that decides which degrees are best, the value with which the fastest layouts
    of each kind are fastest, whatever memory they take. plan: as in `polished`."""
    options = dict.fromkeys(value.option for value in plan.free if value.start == "probe")
    out: list[Choices] = [plan.start] * len(spaces)
    if not options:
        return out
    tables = [_fastest_of_kinds(plan.choosing(plan.start), space) for space in spaces]
    acting = [i for i, table in enumerate(tables) if any(acts(name, table) for name in options)]
    if acting:
        requests = [Settling(plan.start, tables[i], _FORBIDDEN) for i in acting]
        climb = _Climb(plan, requests, memory=False)
        for option in options:
            climb.look_at(option)
        for i, state in zip(acting, climb.states, strict=True):
            out[i] = _choices(plan, state)
    return out


def _fastest_of_kinds(plan: Plan, space: Space) -> Columns:
    """The layout with the least bound of each kind, with small micro-batches and the option that
    repeats least."""
    micro = space.outer["micro_batch"]
    rows = np.flatnonzero(micro <= max(_SMALL, float(micro.min())))
    order = rows[np.argsort(least_of_rows(plan, space, rows), kind="stable")]
    kinds = np.stack([space.outer[name][order] for name in _KINDS])
    _, first = np.unique(kinds, axis=1, return_index=True)
    rows = order[np.sort(first)[: 2 * _LISTED]]
    option = [least_repeated(space)]
    return Columns(
        **{name: column[rows] for name, column in space.outer.items()},
        **{name: np.repeat(column[option], len(rows)) for name, column in space.inner.items()},
    )


def listed(estimates: Outline, taken: Choice, rows: Array | None = None) -> Columns:
    """The best layouts (of these, by default of all), for which other free options may be better:
    the fastest that fit, also of each kind, the fastest with less room than is wanted, the smallest
    of each kind, and where none has enough room those that need least memory."""
    rows = np.arange(len(estimates.fits)) if rows is None else rows
    seconds = estimates.time.seconds[rows]
    level, amount = taken.rank
    near = seconds <= (amount * (1 + NEAR) if level == ENOUGH else np.inf)
    fastest = np.argsort(seconds, kind="stable")
    fastest = fastest[near[fastest]]
    fitting = fastest[estimates.fits[rows][fastest]]
    of_space = estimates.space.row[rows[fitting]]
    kinds = np.stack([estimates.space.outer[name][of_space] for name in _KINDS])
    _, first = np.unique(kinds, axis=1, return_index=True)
    kept = [fitting[:_LISTED], fitting[np.sort(first)[:_LISTED]]]
    device = estimates.memory.device[rows]
    usable = float(estimates.plan.usable_bytes)
    kept += [fastest[device[fastest] <= share * usable][:_LISTED] for share in _NEEDS]
    within_reach = fastest[device[fastest] <= _REACH * usable]
    kept.append(_smallest_of_each(estimates.space, rows, within_reach, device))
    if level != ENOUGH:
        kept.append(np.argsort(device, kind="stable")[:_LISTED])
    return estimates.rows(np.unique(np.append(rows[np.concatenate(kept)], taken.row)))


def _smallest_of_each(space: Space, rows: Array, near: Array, device: Array) -> Array:
    """The one that needs the least memory of each kind of the near layouts, which are fastest
    first: of each micro-batch, ZeRO stage and way to recompute, which free options give room
    differently."""
    by_size = np.argsort(device[near], kind="stable")
    of_space, of_options = space.row[rows[near[by_size]]], space.option[rows[near[by_size]]]
    kinds = [space.outer[name][of_space] for name in ("micro_batch", "zero")]
    kinds.append(space.inner["recompute"][of_options])
    _, first = np.unique(np.stack(kinds), axis=1, return_index=True)
    smallest: Array = near[np.sort(by_size[first])[: 2 * _LISTED]]
    return smallest


def polished(plan: Plan, requests: Sequence[Settling]) -> list[tuple[Choices, Rank]]:
    """For each request the free options that are best for its layouts, with the memory that they
    take, and the rank of the best of these layouts with them. plan: of any of the requests, which
    differ only in GPUs, batch and prices."""
    climb = _Climb(plan, requests)
    options = dict.fromkeys(value.option for value in plan.free)
    acting = [option for option in options if acts(option, climb.table)]
    climb.make_room(acting)
    for option in acting:
        climb.look_at(option)
    return [
        (_choices(plan, state), rank) for state, rank in zip(climb.states, climb.ranks, strict=True)
    ]


def roomier(plan: Plan, best: Sequence[tuple[Choices, Columns]]) -> list[Choices | None]:
    """For each request (its free options and its best layout, a table of one row) the options with
    the one change that saves most memory, of those with which a search begins because they are
    fast: with the room that it makes another layout may be faster. None where none saves much.
    plan: as in `polished`."""
    table = joined([layout for _, layout in best])
    out: list[_State | None] = [None] * len(best)
    short = ~table.is_recompute("none")  # where nothing is repeated there is room
    if not short.any():
        return [None] * len(best)
    starts = [{choice.option: choice for choice in choices} for choices, _ in best]
    least = _devices(plan, starts, table)
    limits = np.where(short, least - _ROOMIER * plan.usable_bytes, -np.inf)
    for option in dict.fromkeys(each.option for each in plan.free if each.start == "first"):
        if not acts(option, table):
            continue
        for value in (None, *(each for each in plan.free if each.option == option)):
            states = [_with(state, option, value) for state in starts]
            devices = _devices(plan, states, table)
            for i in np.flatnonzero((devices < least) & (devices <= limits)):
                least[i], out[i] = devices[i], states[i]
    return [None if state is None else _choices(plan, state) for state in out]


def _devices(plan: Plan, states: Sequence[_State], table: Columns) -> Array:
    """Bytes per GPU of every row with the options of its state."""
    alike: dict[Choices, list[int]] = {}
    for i, state in enumerate(states):
        alike.setdefault(_choices(plan, state), []).append(i)
    out = np.zeros(len(states))
    for choices, rows in alike.items():
        memory = peak_memory(plan.choosing(choices), table.pick(np.array(rows)))
        out[rows] = memory.device
    return out


def _with(state: _State, option: str, value: SoftwareChoice | None) -> _State:
    others = {name: kept for name, kept in state.items() if name != option}
    return others | ({} if value is None else {option: value})


def _choices(plan: Plan, state: _State) -> Choices:
    """The options of a state in the order of the table."""
    return tuple(each for each in plan.free if state.get(each.option) == each)


def better(new: Rank, old: Rank) -> bool:
    """Whether a rank is so much less that it is worth other options."""
    least = _GAIN if old[0] == ENOUGH else _ROUNDING
    return new[0] < old[0] or (new[0] == old[0] and new[1] < old[1] - least * abs(old[1]))


class _Climb:
    """Free options of several requests on the way to their best. memory: layouts have to fit; where
    not, the ranks are evaluated first."""

    def __init__(self, plan: Plan, requests: Sequence[Settling], *, memory: bool = True) -> None:
        self.plan, self.memory = plan, memory
        self.states: list[_State] = [
            {choice.option: choice for choice in request.choices} for request in requests
        ]
        self.ranks = [request.rank for request in requests]
        tables = [request.table for request in requests]
        self.table = joined(tables)
        self.of_row = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        self.allowed = check(plan.choosing(()), self.table)
        if not memory:
            alike = range(len(requests))
            self.ranks = self._ranked(requests[0].choices, alike)

    def make_room(self, options: Sequence[str]) -> None:
        """The change of one option that is best, for requests whose layouts lack room: options take
        room from each other, so that the first that gives any need not be the one to change."""
        short = [i for i, (level, _) in enumerate(self.ranks) if level != ENOUGH]
        if not short:
            return
        start = list(self.states), list(self.ranks)
        best = {i: (self.ranks[i], self.states[i]) for i in short}
        for option in options:
            for value in (None, *(each for each in self.plan.free if each.option == option)):
                self._try(option, value, short)
                for i in short:
                    best[i] = min(
                        best[i], (self.ranks[i], self.states[i]), key=lambda entry: entry[0]
                    )
                self.states, self.ranks = list(start[0]), list(start[1])
        for i, (rank, state) in best.items():
            self.ranks[i], self.states[i] = rank, state

    def look_at(self, option: str) -> None:
        """Every value of an option, the stack's own among them, for every request."""
        values = [choice for choice in self.plan.free if choice.option == option]
        every = range(len(self.states))
        if values[0].start != "always":
            self._try(option, None, every)
        for value in values:
            self._try(option, value, every)

    def _try(self, option: str, value: SoftwareChoice | None, among: Collection[int]) -> None:
        """Set an option for these requests where that gains."""
        tried: dict[int, _State] = {}
        for i in among:
            if self.states[i].get(option) != value:
                tried[i] = _with(self.states[i], option, value)
        alike: dict[Choices, list[int]] = {}
        for i, state in tried.items():
            alike.setdefault(_choices(self.plan, state), []).append(i)
        for choices, members in alike.items():
            for i, rank in zip(members, self._ranked(choices, members), strict=True):
                if better(rank, self.ranks[i]):
                    self.states[i], self.ranks[i] = tried[i], rank

    def _ranked(self, choices: Choices, members: Sequence[int]) -> list[Rank]:
        """The rank of the best layout of each of these requests with these options."""
        variant = self.plan.choosing(choices)
        rows = np.flatnonzero(np.isin(self.of_row, members))
        rows = rows[self._may_run(variant, rows)]
        ranks = [_FORBIDDEN] * len(members)
        if not len(rows):
            return ranks
        table = self.table.pick(rows)
        time = step_time(variant, table, sums=True)
        at = [np.flatnonzero(self.of_row[rows] == i) for i in members]
        if not self.memory:
            return [(ENOUGH, float(np.min(time.seconds[mine], initial=np.inf))) for mine in at]
        # whatever memory the others need, they do not gain
        open_ = [
            k
            for k, (i, mine) in enumerate(zip(members, at, strict=True))
            if len(mine) and self._faster(float(time.seconds[mine].min()), i)
        ]
        if open_:
            memory = peak_memory(variant, table)
            result = Estimates(variant, table, time, memory, *fit(variant, memory))
            for k in open_:
                ranks[k] = choice(result, at[k]).rank
        return ranks

    def _faster(self, seconds: float, request: int) -> bool:
        level, _ = self.ranks[request]
        return level != ENOUGH or better((ENOUGH, seconds), self.ranks[request])

    def _may_run(self, variant: Plan, rows: Array) -> Array:
        """Which rows break no rule with these options that they do not break without any."""
        ok = np.ones(len(rows), dtype=bool)
        for name, holds in check(variant, self.table.pick(rows)).items():
            ok &= holds | ~self.allowed[name][rows]
        return ok
