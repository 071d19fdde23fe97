"""The space of layouts of a plan: rows times options, as factored columns or as plain ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.estimate.factored.column import Column, column_of, values_on
from planner.estimate.factored.evaluate import known, run, settle
from planner.estimate.factored.levels import Levels, distinct, level_of, packed
from planner.ledger import Array
from planner.specs.columns import ByName, Columns


@dataclass(frozen=True, eq=False)
class Space:
    """Rows times options: each row with one of its options is a layout.

    Rows with the same options lie side by side; layouts are numbered row by row.
    """

    outer: ByName  # columns with a value per row
    inner: ByName  # columns with a value per option
    options: Array  # (patterns, options): which options go together
    pattern: Array  # of every row, the pattern of its options
    source: Array  # of every row, its position among those that the space was made of

    @classmethod
    def of(cls, outer: ByName, inner: ByName, options: Array, pattern: Array) -> Space:
        """The space of these rows, row i with the options marked in `options[pattern[i]]`; rows
        without options are left out."""
        _, first, which = np.unique(packed(options), return_index=True, return_inverse=True)
        options, pattern = options[first], which.reshape(-1)[pattern]
        some = np.flatnonzero(options.any(axis=1)[pattern])
        source = some[np.argsort(pattern[some], kind="stable")]
        outer = {name: column[source] for name, column in outer.items()}
        return cls(outer, inner, options, pattern[source], source)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.pattern)

    @property
    def most(self) -> int:
        """Layouts if every row had every option."""
        return self.rows * self.options.shape[1]

    @functools.cached_property
    def counts(self) -> Array:
        """Layouts of each row."""
        return self.options.sum(axis=1)[self.pattern]

    @functools.cached_property
    def count(self) -> int:
        """Layouts."""
        return int(self.counts.sum())

    @functools.cached_property
    def row(self) -> Array:
        """Row of every layout."""
        return np.repeat(np.arange(self.rows), self.counts)

    @functools.cached_property
    def option(self) -> Array:
        """Option of every layout."""
        if not self.rows:
            return np.zeros(0, dtype=np.intp)
        patterns, rows = np.unique(self.pattern, return_counts=True)
        marked = (np.flatnonzero(self.options[pattern]) for pattern in patterns)
        return np.concatenate([np.tile(m, n) for m, n in zip(marked, rows, strict=True)])

    def columns(self) -> Columns:
        """The table of layouts as factored columns, each on the level of its own values. Columns of
        two calls do not go together."""
        levels = Levels.of(self.options, self.pattern)
        out: ByName = {}
        for name, column in self.outer.items():
            level = level_of(column)
            out[name] = column_of(levels, level, column[level.example, None])
        for name, column in self.inner.items():
            out[name] = column_of(levels, levels.constant, column[None, :])
        return Columns(**out)

    def flat(self, layouts: Array | None = None) -> Columns:
        """Plain columns of all layouts, or of those with these numbers."""
        which = slice(None) if layouts is None else layouts
        row, option = self.row[which], self.option[which]
        return Columns(
            **{name: column[row] for name, column in self.outer.items()},
            **{name: column[option] for name, column in self.inner.items()},
        )

    def values(
        self, *columns: Column | float, tick: Callable[[float], None] | None = None
    ) -> list[Array]:
        """A plain array of one value per layout for each of these results of `columns()`. tick:
        called with the share done, now and then."""
        out = [np.full(self.count, np.nan if isinstance(x, Column) else x) for x in columns]
        wanted = [x for x in columns if isinstance(x, Column)]
        if not wanted:
            return out
        targets = [array for x, array in zip(columns, out, strict=True) if isinstance(x, Column)]
        ends = np.cumsum(self.counts)

        def keep(rows: Array, options: Array, values: list[Array]) -> None:
            end = ends[rows[-1]]
            layouts = slice(end - len(rows) * len(options), end)
            for target, value in zip(targets, values, strict=True):
                target[layouts] = np.broadcast_to(value, (len(rows), len(options))).reshape(-1)
            if tick is not None:
                tick(end / self.count)

        levels = wanted[0].levels
        settle(levels, [x for x in wanted if x.deferred])
        levels.computed.clear()
        run(levels, levels.rows, wanted, keep)
        return out

    def restricted(self, holds: Any) -> Space:
        """The layouts for which a column of truths on `columns()` holds."""
        if not isinstance(holds, Column):
            none = self.options & False
            return self if holds else Space.of(self.outer, self.inner, none, self.pattern)
        values = known(holds).astype(bool)
        levels = holds.levels
        levels.computed.clear()
        if values.all():
            return self
        pairs = levels.union(distinct(self.pattern, len(self.options)), holds.level)
        options = self.options[self.pattern[pairs.example]]
        left = options & values[holds.level.of_row[pairs.example]]
        return Space.of(self.outer, self.inner, left, pairs.of_row)


def distinct_combinations(
    columns: Mapping[str, Column],
) -> tuple[ByName, Callable[[Array], Column]]:
    """(plain columns of the distinct combinations of these, what makes a column of a space out of a
    value per combination)."""
    levels = next(iter(columns.values())).levels
    level = functools.reduce(levels.union, (x.level for x in columns.values()))

    def spread(leaf: Array) -> Column:
        leaf = np.asarray(leaf, dtype=float)
        return column_of(levels, levels.constant if leaf.size == 1 else level, leaf.reshape(-1, 1))

    return {name: values_on(x, level)[:, 0] for name, x in columns.items()}, spread
