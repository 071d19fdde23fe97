"""The layout to take of each of several plans whose layouts are evaluated as one table.

Layouts that differ in recompute alone wait behind the one that repeats nothing, which is hardly
ever slower: they are looked at where it does not fit, or is so near the fastest that they might
undercut it. Memory is computed of the fastest, until one fits and none that ties with it is left
out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planner.estimate import fit, outline
from planner.estimate.factored.column import Space
from planner.estimate.memory import peak_memory
from planner.estimate.step import step_time
from planner.estimate.ties import TIE, fastest
from planner.ledger import Array
from planner.search.choose import best, smallest
from planner.specs.base import PlanError
from planner.specs.columns import ByName, Columns
from planner.specs.layout import RECOMPUTE_KINDS
from planner.specs.plan import Plan

_FIRST = 16  # fastest layouts of a plan whose memory is looked at first
_MORE = 4  # and so many times more in each further round
_ROUNDS = 4  # after which a plan of which nothing fits yet is searched by itself, if it has
_MANY = 4096  # layouts or more
# by how much repeating work can make a step shorter: where sends between chunks are what a pipeline
# waits for, longer chunks hide them, and a longer backward pass hides more of the gradients; 3.2 %
# is the most that was found (vpp 16 over PCIe)
GAIN = 0.05
_FACTORED = 16384  # rows beyond which factored columns are quicker
_CHUNK = 16384  # rows evaluated at once: larger tables leave the processor's caches


@dataclass
class Owner:
    """A plan with its layouts: some rows of a space, which may hold those of other global batches
    too."""

    plan: Plan
    asked: list[tuple[int, Plan]] = field(
        default_factory=list
    )  # requests that have it: they may differ in price and length
    space: Space | None = None
    rows: Array = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    error: PlanError | None = None

    @property
    def count(self) -> int:
        """Layouts."""
        return 0 if self.space is None else int(self.space.counts[self.rows].sum())

    def alone(self) -> Space:
        """The layouts as a space of their own."""
        assert self.space is not None
        rows = {
            name: column[self.rows]
            for name, column in self.space.outer.items()
            if name != "global_batch"
        }
        return Space(rows, self.space.inner, self.space.options, self.space.pattern[self.rows])


@dataclass(frozen=True)
class Best:
    """The layout that is taken, as a table of one row with its global batch, and what ranks it
    among plans."""

    fits: bool
    rank: float  # seconds if it fits, else bytes
    table: Columns


def best_of_each(block: Sequence[Owner]) -> list[Best]:
    """The layout that each plan's own search would take. The plans differ in GPUs, global batch,
    price and length of the run."""
    found = _Candidates(block)
    bound = np.full(
        len(block), np.inf
    )  # seconds beyond which nothing ties with the fastest that fits
    goal = np.full(len(block), _FIRST)
    aside: set[int] = set()
    for rounds in itertools.count(1):
        owner = found.owner
        open_ = np.flatnonzero(~found.seen & (found.seconds <= bound[owner]))
        if not len(open_):
            if not found.challenge(bound):
                break
            continue
        order = open_[np.lexsort((found.seconds[open_], owner[open_]))]
        mine = owner[order]
        place = np.arange(len(order)) - np.searchsorted(mine, mine)
        found.look(order[place < goal[mine]])
        goal *= _MORE
        fitting = np.flatnonzero(found.fits)
        np.minimum.at(bound, found.owner[fitting], found.seconds[fitting] * (1 + TIE))
        if rounds == _ROUNDS:
            aside = {k for k in np.flatnonzero(np.isinf(bound)).tolist() if block[k].count >= _MANY}
            bound[list(aside)] = -np.inf
    parts = found.parts()
    return [
        _by_itself(owner) if k in aside else found.best(parts[k]) for k, owner in enumerate(block)
    ]


def _by_itself(owner: Owner) -> Best:
    """By factored columns, which evaluate every layout; quicker where most must be looked at."""
    found = outline(owner.plan, owner.alone())
    row = best(found)
    fits = row is not None
    at = smallest(found) if row is None else row
    batch = np.full(1, float(owner.plan.training.global_batch))
    table = replace(found.rows(np.array([at])), global_batch=batch)
    return Best(fits, float((found.time.seconds if fits else found.memory.device)[at]), table)


class _Candidates:
    """Layouts of several plans whose times are known: of every row the one without recompute, and
    once that does not fit, the others; all of a row that has none without."""

    def __init__(self, block: Sequence[Owner]) -> None:
        self.plan, self.count = block[0].plan, len(block)
        spaces = {id(owner.space): owner.space for owner in block if owner.space is not None}
        start = dict(
            zip(spaces, np.cumsum([0, *(len(s.options) for s in spaces.values())]), strict=False)
        )
        options = np.concatenate([s.options for s in spaces.values()])
        self.options, kind = np.unique(options, axis=0, return_inverse=True)
        held = [(owner.space, owner.rows) for owner in block if owner.space is not None]
        self.rows = {
            name: np.concatenate([space.outer[name][rows] for space, rows in held])
            for name in held[0][0].outer
        }
        self.pattern = kind.reshape(-1)[
            np.concatenate([start[id(space)] + space.pattern[rows] for space, rows in held])
        ]
        self.owner_of_row = np.repeat(np.arange(len(block)), [len(rows) for _, rows in held])
        self.inner = held[0][0].inner
        first = self.options & _undercut_by_none(self.inner)
        first[~first.any(axis=1)] = self.options[~first.any(axis=1)]
        self.others = self.options & ~first
        self.row = self.option = np.zeros(0, dtype=np.intp)
        self.seconds = self.repeated = self.device = np.zeros(0)
        self.waiting = self.seen = self.fits = np.zeros(0, dtype=bool)
        self._add(np.arange(len(self.pattern)), first, self.others.any(axis=1))

    @property
    def owner(self) -> Array:
        """Of every candidate."""
        return self.owner_of_row[self.row]

    def _add(self, rows: Array, options: Array, waiting: Array) -> None:
        """Compute the times of these rows with some options; waiting: whether others of the row
        wait. Both by pattern."""
        at, option = np.nonzero(options[self.pattern[rows]])
        row = rows[at]
        seconds, repeated = self._times(row, option)
        none = np.zeros(len(row), dtype=bool)
        for name, more in (
            ("row", row),
            ("option", option),
            ("seconds", seconds),
            ("repeated", repeated),
            ("device", none + np.inf),
            ("waiting", waiting[self.pattern[row]]),
            ("seen", none),
            ("fits", none),
        ):
            setattr(self, name, np.concatenate([getattr(self, name), more]))

    def _times(self, row: Array, option: Array) -> tuple[Array, Array]:
        """(seconds of a step, those of recompute among them) of these layouts."""
        if len(row) > _FACTORED and (option == option[0]).all():
            one = np.ones((1, 1), dtype=bool)
            space = Space(
                _picked(self.rows, row),
                _picked(self.inner, option[:1]),
                one,
                np.zeros(len(row), dtype=np.intp),
            )
            time = step_time(self.plan, space.columns)
            seconds, repeated = space.values(time.seconds, time.components["recompute"])
            space.release()
            return seconds, repeated
        seconds, repeated = np.empty(len(row)), np.empty(len(row))
        for part in _chunks(len(row)):
            time = step_time(self.plan, self._table(row[part], option[part]))
            seconds[part], repeated[part] = time.seconds, time.components["recompute"]
        return seconds, repeated

    def _table(self, row: Array, option: Array) -> Columns:
        return Columns(**_picked(self.rows, row), **_picked(self.inner, option))

    def look(self, which: Array) -> None:
        """Compute the memory of these candidates; where one does not fit, its row's other options
        become candidates."""
        for part in _chunks(len(which)):
            some = which[part]
            memory = peak_memory(self.plan, self._table(self.row[some], self.option[some]))
            self.fits[some], self.device[some], self.seen[some] = (
                fit(self.plan, memory)[0],
                memory.device,
                True,
            )
        self._unfold(which[~self.fits[which] & self.waiting[which]])

    def challenge(self, bound: Array) -> bool:
        """Make candidates of what waits behind layouts so fast that it might undercut the bounds;
        whether there was any."""
        near = np.flatnonzero(self.waiting & (self.seconds * (1 - GAIN) <= bound[self.owner]))
        self._unfold(near)
        return len(near) > 0

    def _unfold(self, which: Array) -> None:
        """The other options of these candidates' rows become candidates."""
        self.waiting[which] = False
        if len(which):
            self._add(self.row[which], self.others, np.zeros(len(self.options), dtype=bool))

    def parts(self) -> list[Array]:
        """Candidates of each plan, in the order of a search: it takes the first of equals."""
        order = np.lexsort((self.option, self.row))
        ends = np.searchsorted(self.owner[order], np.arange(self.count + 1))
        return [order[ends[k] : ends[k + 1]] for k in range(self.count)]

    def best(self, part: Array) -> Best:
        """The one to take among these."""
        usable, device = self.fits[part], self.device[part]
        fits = bool(usable.any())
        if fits:
            at = part[
                fastest(np.where(usable, self.seconds[part], np.inf), self.repeated[part], device)
            ]
        else:
            at = part[int(device.argmin())]
        table = self._table(self.row[at : at + 1], self.option[at : at + 1])
        return Best(fits, float((self.seconds if fits else self.device)[at]), table)


def _picked(columns: ByName, rows: Array) -> ByName:
    return {name: column[rows] for name, column in columns.items()}


def _chunks(rows: int) -> Iterator[slice]:
    return (slice(start, start + _CHUNK) for start in range(0, rows, _CHUNK))


def _undercut_by_none(inner: ByName) -> Array:
    """Options that hardly any other one undercuts: without recompute, where nothing else
    differs."""
    none = inner["recompute"] == RECOMPUTE_KINDS.index("none")
    return none if len(np.unique(inner["offload"])) == 1 else np.ones_like(none)
