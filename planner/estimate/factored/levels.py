"""Levels: which rows of a space share the values of some columns.

A level is the set of distinct combinations of some row columns. Levels form a lattice between
`constant` (all rows share one value) and `rows` (every row on its own); a result of two columns
lives on the union of their levels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner.ledger import Array

# codes up to which a table (4 bytes a code) finds distinct combinations, beyond it sorting, which
# takes five times as long: a table of 16 MB costs no new pages
_TABLE = 4_000_000
# a level with fewer combinations than this share of the rows is worth evaluating on its own
_SHARED = 0.4


@dataclass(frozen=True, eq=False, slots=True)
class Level:
    """Distinct combinations of some row columns. Equal is only the same level: it is a key."""

    of_row: Array  # of every row of the space, the number of its combination
    example: Array  # of every combination, the first row that has it

    @property
    def count(self) -> int:
        """Combinations."""
        return len(self.example)


@dataclass(frozen=True, slots=True)
class Groups:
    """The combinations of a level by the options that their rows go with: a group has the same."""

    members: list[tuple[Array, Array]]  # of each group: (its combinations, their options)
    group: Array  # of every combination, its group
    place: Array  # of every combination, its position in the group


@dataclass(frozen=True, eq=False, slots=True)
class Levels:
    """Levels of the columns of a space, and the results computed on them.

    The four dicts are caches: each value is a function of its key, so that reading them in another
    order changes nothing but time. `computed` holds the columns of the evaluation that is going on,
    under operation and operands; `forget` empties it.
    """

    options: Array  # (patterns, options): which options go together
    pattern: Array  # of every row, the pattern of its options
    rows: Level
    constant: Level
    computed: dict[Any, Any] = field(default_factory=dict)
    _unions: dict[frozenset[Level], Level] = field(default_factory=dict)
    _maps: dict[tuple[Level, Level], Array] = field(default_factory=dict)
    _groups: dict[Level, Groups] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Array, pattern: Array) -> Levels:
        """The levels of rows that go with the options marked in `options[pattern[row]]`."""
        count = len(pattern)
        each = np.arange(count)
        single = Level(np.zeros(count, dtype=np.intp), np.zeros(min(1, count), dtype=np.intp))
        return cls(options, pattern, Level(each, each), single)

    def union(self, a: Level, b: Level) -> Level:
        """The level of the distinct combinations of two; where hardly any rows share a combination,
        the level of the rows."""
        if a is b or b.count == 1 or a is self.rows:
            return a
        if a.count == 1 or b is self.rows:
            return b
        key = frozenset((a, b))
        if key not in self._unions:
            combined = distinct(a.of_row * b.count + b.of_row, a.count * b.count)
            same = [level for level in (a, b) if level.count == combined.count]
            shared = combined.count <= _SHARED * self.rows.count
            self._unions[key] = same[0] if same else combined if shared else self.rows
        return self._unions[key]

    def map(self, fine: Level, coarse: Level) -> Array:
        """For each combination of the finer level, which one of the coarser it belongs to."""
        key = fine, coarse
        if key not in self._maps:
            self._maps[key] = coarse.of_row[fine.example]
        return self._maps[key]

    def groups(self, level: Level) -> Groups:
        """The combinations of a level by the options that any row of theirs goes with."""
        if level not in self._groups:
            self._groups[level] = self._grouped(level)
        return self._groups[level]

    def _grouped(self, level: Level) -> Groups:
        met = np.zeros((level.count, len(self.options)), dtype=bool)
        met[level.of_row, self.pattern] = True
        _, first, which = np.unique(packed(met), return_index=True, return_inverse=True)
        groups = Groups([], *(np.empty(level.count, dtype=np.intp) for _ in range(2)))
        for number, kind in enumerate(np.argsort(first)):
            members = np.flatnonzero(which.reshape(-1) == kind)
            groups.group[members], groups.place[members] = number, np.arange(len(members))
            options = np.flatnonzero(self.options[met[first[kind]]].any(axis=0))
            groups.members.append((members, options))
        return groups


def distinct(code: Array, codes: int) -> Level:
    """The level of rows with equal codes (whole numbers below `codes`), numbered as they come,
    which keeps rows with the same options together."""
    if codes > _TABLE:
        values, code = np.unique(code, return_inverse=True)
        codes = len(values)
    rows = np.arange(len(code))
    first = np.empty(codes, dtype=np.int32)
    first[code[::-1]] = rows[::-1]
    example = np.flatnonzero(first[code] == rows)
    first[code[example]] = np.arange(len(example))
    return Level(first[code].astype(np.intp), example)


def level_of(column: Array) -> Level:
    """The level of one row column. Counts and codes need no sorting."""
    code = column.astype(np.intp)
    if code.min() < 0 or (code != column).any():
        values, code = np.unique(column, return_inverse=True)
        return distinct(code, len(values))
    return distinct(code, int(code.max()) + 1)


def packed(mask: Array) -> Array:
    """Rows of booleans as one value each."""
    bits = np.ascontiguousarray(np.packbits(mask, axis=1))
    return bits.view(f"S{bits.shape[1]}").reshape(-1)
