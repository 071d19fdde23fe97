"""Free options of a stack, which a search settles: kernels, overlap, dispatch (`Plan.free`).

They multiply the space, so they are not crossed with it. The layouts are searched with the values
that are usually best (`Plan.start`, `probed`), and where work is repeated for lack of memory with
the value that saves most of it (`roomier`). Then the best layouts are looked at with one option
changed at a time, memory included, each change that gains is kept, and the layouts are searched
again with what was kept. tests/test_software.py compares with every combination of options and
layouts of small spaces.

The choice depends on the plan only: it is the same for one request, in a sweep and in advice.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.estimate import Estimates, Outline, fit
from planner.estimate.factored import Space
from planner.estimate.memory import Memory, peak_memory
from planner.estimate.step import StepTime, step_time
from planner.formulas.experts import tensor_of
from planner.formulas.rules import check
from planner.formulas.rules.stack import ACTS
from planner.ledger import Array
from planner.search.choose import ENOUGH, NONE, Choice, Rank, choice
from planner.search.prune import least_of_rows, least_repeated
from planner.search.together import Measured, better_together
from planner.specs.columns import Columns, joined
from planner.specs.plan import Plan, SoftwareChoice

# relative: layouts that are slower than the best by less may be the best with other options
NEAR = 0.1
_LISTED = 16  # layouts that are looked at: of those that fit, of all, that need least memory
# shares of a device that layouts need: the fastest of each are looked at, since options make room
_NEEDS = (1.0, 1.1, np.inf)
_REACH = 1.5  # share of a device beyond which no option makes room
_KINDS = ("tp", "cp", "ep")  # the fastest of each kind that fits is looked at, too
# options that are degrees: which layouts there are depends on them
DEGREES = ("etp",)
_SMALL = 2  # micro-batches of layouts that are probed
GAIN = 5e-4  # relative, of seconds: what gains less is not worth an option
_ROUNDING = 1e-6  # relative, of chances and bytes
# share of a GPU's memory that another value has to save for a search with it
_ROOMIER = 0.05
# components of a step that an option can make shorter; another option can all of them
SHORTENS = {
    "dp_bucket": ("data_parallel",),
    "gradient_sync": ("data_parallel",),
    "tp_overlap": ("tensor_parallel",),
    "cp_comm_type": ("context_parallel", "attention"),
    "cuda_graphs": ("launch",),
    # which stage is the slowest, whose gradients are waited for, depends on the loss, too
    "loss_kernel": ("memory_bound", "launch", "data_parallel"),
    "master_precision": ("optimizer",),
}
_FORBIDDEN = (np.inf, np.inf)

Choices = tuple[SoftwareChoice, ...]
_State = dict[str, SoftwareChoice]  # by option; one that is not in it is as the stack has it


@dataclass(frozen=True)
class Listed:
    """Layouts with their seconds and bytes per GPU."""

    table: Columns
    seconds: Array
    device: Array


@dataclass(frozen=True)
class Settling:
    """The best layouts of a request, the free options that they were searched with, and the rank of
    the best of them."""

    choices: Choices
    listed: Listed
    rank: Rank

    @property
    def table(self) -> Columns:
        """The layouts."""
        return self.listed.table


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
        nothing = np.zeros(0)  # is known of them
        requests = [
            Settling(plan.start, Listed(tables[i], nothing, nothing), _FORBIDDEN) for i in acting
        ]
        climb = _Climb(plan, requests, memory=False)
        for option in options:
            climb.look_at(option)
        for i, state in zip(acting, climb.states, strict=True):
            out[i] = choices_of(plan, state)
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


def listed(estimates: Outline, taken: Choice, rows: Array | None = None) -> Listed:
    """The best layouts (of these, by default of all), for which other free options may be better:
    the fastest that fit, also of each kind, the fastest with less room than is wanted, the smallest
    of each kind, and those that need least memory of what is faster but lacks room, or of all where
    none has enough."""
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
    if level == ENOUGH:  # what is faster lacks room, the smallest the least
        faster = np.flatnonzero(seconds < amount * (1 - GAIN))
        kept.append(faster[np.argsort(device[faster], kind="stable")[:_LISTED]])
    else:
        kept.append(np.argsort(device, kind="stable")[:_LISTED])
    each = np.unique(np.append(rows[np.concatenate(kept)], taken.row))
    device_bytes: Array = estimates.memory.device[each]
    return Listed(estimates.rows(each), estimates.time.seconds[each], device_bytes)


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
    climb.combine()
    return [
        (choices_of(plan, state), rank)
        for state, rank in zip(climb.states, climb.ranks, strict=True)
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
            states = [with_value(state, option, value) for state in starts]
            devices = _devices(plan, states, table)
            for i in np.flatnonzero((devices < least) & (devices <= limits)):
                least[i], out[i] = devices[i], states[i]
    return [None if state is None else choices_of(plan, state) for state in out]


def other_degrees(plan: Plan, choices: Choices, rank: Rank) -> list[Choices]:
    """These free options with each other value of those that are degrees, where no layout has
    enough room: others may, and no change of a layout's options leads to them."""
    if rank[0] == ENOUGH or beyond_room(rank, plan):
        return []
    state = {choice.option: choice for choice in choices}
    options = {value.option for value in plan.free}.intersection(DEGREES)
    return [
        choices_of(plan, with_value(state, option, value))
        for option in sorted(options)
        for value in values_of(plan, option)
        if state.get(option) != value
    ]


def _devices(plan: Plan, states: Sequence[_State], table: Columns) -> Array:
    """Bytes per GPU of every row with the options of its state."""
    alike: dict[Choices, list[int]] = {}
    for i, state in enumerate(states):
        alike.setdefault(choices_of(plan, state), []).append(i)
    out = np.zeros(len(states))
    for choices, rows in alike.items():
        memory = peak_memory(plan.choosing(choices), table.pick(np.array(rows)))
        out[rows] = memory.device
    return out


def with_value(state: _State, option: str, value: SoftwareChoice | None) -> _State:
    others = {name: kept for name, kept in state.items() if name != option}
    return others | ({} if value is None else {option: value})


def choices_of(plan: Plan, state: _State) -> Choices:
    """The options of a state in the order of the table."""
    return tuple(each for each in plan.free if state.get(each.option) == each)


def beyond_room(rank: Rank, plan: Plan) -> bool:
    """Whether the layout with the least memory needs so much that no free option makes room."""
    return rank[0] == NONE and rank[1] > _REACH * float(plan.usable_bytes)


def better(new: Rank, old: Rank) -> bool:
    """Whether a rank is so much less that it is worth other options."""
    least = GAIN if old[0] == ENOUGH else _ROUNDING
    return new[0] < old[0] or (new[0] == old[0] and new[1] < old[1] - least * abs(old[1]))


def values_of(plan: Plan, option: str) -> list[SoftwareChoice | None]:
    """Values of an option that are tried, the stack's own (None) among them."""
    values = [choice for choice in plan.free if choice.option == option]
    return [*values] if values[0].start == "always" else [None, *values]


def may_run(variant: Plan, table: Columns, without: Mapping[str, Array]) -> Array:
    """Which layouts break no rule with these options that they do not break without any."""
    ok = np.ones(len(table), dtype=bool)
    for name, holds in check(variant, table).items():
        ok &= holds | ~without[name]
    return ok


@dataclass(frozen=True)
class _Evaluated:
    """Layouts of several requests (at: the rows of each) with the options of a plan, evaluated as
    far as they are looked at. base: of each row, its row in the climb's table."""

    plan: Plan
    table: Columns
    at: list[Array]
    base: Array

    @functools.cached_property
    def time(self) -> StepTime:
        return step_time(self.plan, self.table, sums=True)

    @functools.cached_property
    def memory(self) -> Memory:
        return peak_memory(self.plan, self.table)

    def measured(self, count: int, rows: Array) -> Measured:
        """Seconds and bytes of these rows of the climb's table of `count`; of a layout that has
        several forms the fastest counts."""
        order = np.argsort(-self.time.seconds, kind="stable")

        def spread(values: Array) -> Array:
            out = np.full(count, np.inf)
            out[self.base[order]] = values[order]
            return out[rows]

        return Measured(spread(self.time.seconds), lambda: spread(self.memory.device))

    @functools.cached_property
    def fits(self) -> tuple[Array, Array, Array]:
        return fit(self.plan, self.memory)

    @functools.cached_property
    def estimates(self) -> Estimates:
        return Estimates(self.plan, self.table, self.time, self.memory, *self.fits)


class _Climb:
    """Free options of several requests on the way to their best. memory: layouts have to fit; where
    not, the ranks are evaluated first."""

    def __init__(self, plan: Plan, requests: Sequence[Settling], *, memory: bool = True) -> None:
        self.plan, self.requests, self.memory = plan, requests, memory
        self.states: list[_State] = [
            {choice.option: choice for choice in request.choices} for request in requests
        ]
        self.ranks = [request.rank for request in requests]
        tables = [request.table for request in requests]
        self.table = joined(tables)
        self.of_row = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        self.allowed = check(plan.choosing(()), self.table)
        # ranks that split an expert, with the options that the layouts were searched with
        self.etp = np.concatenate(
            [tensor_of(plan.choosing(each.choices), each.table.tp) for each in requests]
        )
        fits = [each.rank[0] != NONE for each in requests]
        self.fits = np.array(fits)[self.of_row]
        self.known: dict[tuple[Choices, tuple[int, ...]], _Evaluated] = {}
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
        for value in values_of(self.plan, option):
            self._try(option, value, range(len(self.states)))

    def combine(self) -> None:
        """The options that are predicted to be best together by what each was worth to each layout,
        where that holds."""
        for i, (level, _) in enumerate(self.ranks):
            for state in self._together(i) if level == ENOUGH else ():
                (rank,) = self._ranked(choices_of(self.plan, state), [i])
                if better(rank, self.ranks[i]):
                    self.states[i], self.ranks[i] = state, rank

    def _together(self, request: int) -> list[_State]:
        """Several changes of a request's options that are predicted to gain, the best first."""
        start, mine = self.requests[request], np.flatnonzero(self.of_row == request)
        known = {
            frozenset(choices): entry.measured(len(self.table), mine)
            for (choices, members), entry in self.known.items()
            if request in members and len(entry.table)
        }
        listed = start.listed
        known[frozenset(start.choices)] = Measured(listed.seconds, lambda: listed.device)
        here = frozenset(choices_of(self.plan, self.states[request]))
        least = self.ranks[request][1] * (1 - GAIN)
        each = better_together(known, here, float(self.plan.usable_bytes), least)
        return [{choice.option: choice for choice in taken} for taken in each]

    def _try(self, option: str, value: SoftwareChoice | None, among: Collection[int]) -> None:
        """Set an option for these requests where that gains."""
        tried: dict[int, _State] = {}
        for i in among:
            if self.states[i].get(option) != value:
                tried[i] = with_value(self.states[i], option, value)
        alike: dict[Choices, list[int]] = {}
        for i, state in tried.items():
            alike.setdefault(choices_of(self.plan, state), []).append(i)
        for choices, members in alike.items():
            for i, rank in zip(members, self._ranked(choices, members), strict=True):
                if better(rank, self.ranks[i]):
                    self.states[i], self.ranks[i] = tried[i], rank

    def _ranked(self, choices: Choices, members: Sequence[int]) -> list[Rank]:
        """The rank of the best layout of each of these requests with these options."""
        tried = self._evaluated(choices, tuple(members))
        ranks = [_FORBIDDEN] * len(members)
        if not len(tried.table):
            return ranks
        at = tried.at
        if self.memory and all(self.ranks[i][0] != ENOUGH for i in members):
            device, fits = tried.memory.device, tried.fits[0]
            if not fits.any():  # however long they take
                return [(NONE, float(device[mine].min(initial=np.inf))) for mine in at]
        seconds = tried.time.seconds
        if not self.memory:
            return [(ENOUGH, float(np.min(seconds[mine], initial=np.inf))) for mine in at]
        # whatever memory the others need, they do not gain
        for k, (i, mine) in enumerate(zip(members, at, strict=True)):
            if len(mine) and self._faster(float(seconds[mine].min()), i):
                ranks[k] = choice(tried.estimates, mine).rank
        return ranks

    def _evaluated(self, choices: Choices, members: tuple[int, ...]) -> _Evaluated:
        """The layouts of these requests with these options, as evaluated before where they were;
        where experts are split among other numbers of ranks, those with as many times the
        experts on each, too."""
        if (choices, members) not in self.known:
            variant = self.plan.choosing(choices)
            rows = np.flatnonzero(np.isin(self.of_row, members))
            table = self.table.pick(rows)
            ep = table.ep * self.etp[rows] / tensor_of(variant, table.tp)
            other = (ep >= 1) & (np.mod(ep, 1) == 0) & (ep != table.ep)
            moved = np.flatnonzero(other & self.fits[rows])  # which saves no memory
            if len(moved):
                table = joined([table, replace(table, ep=ep).pick(moved)])
                rows = np.concatenate([rows, rows[moved]])
            without = {name: holds[rows] for name, holds in self.allowed.items()}
            kept = np.flatnonzero(may_run(variant, table, without))
            at = [np.flatnonzero(self.of_row[rows[kept]] == i) for i in members]
            self.known[choices, members] = _Evaluated(variant, table.pick(kept), at, rows[kept])
        return self.known[choices, members]

    def _faster(self, seconds: float, request: int) -> bool:
        level, _ = self.ranks[request]
        return level != ENOUGH or better((ENOUGH, seconds), self.ranks[request])
