"""Columns that know which options they depend on: arithmetic happens on distinct combinations, not
on every layout.

A space of layouts is a table of rows (degrees, micro-batch, schedule, ...) times a table of options
that go with every row (recompute, offload). A `Column` holds one value, or one per option, for each
distinct combination of the row columns it was made from. Operations between columns work on the
distinct combinations of both, so formulas written for plain columns run on these unchanged, and
most of their work is done a few hundred times instead of a million times. What depends on (nearly)
everything is remembered and evaluated at the end, in blocks, and only where somebody asks for it.
Nothing is computed twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from planner.ledger import Array
from planner.specs.columns import ByName, Columns

# values of a column that are worked on together: few enough for the cache, enough for numpy
_BLOCK = 16384
_EAGER = 32768  # values up to which a column is computed at once
# codes of combinations per row up to which a table is used to find distinct ones, beyond it sorting
_LOOKUP = 8
# a level with fewer combinations than this share of the rows is worth evaluating on its own
_SHARED = 0.4


class Level:
    """Distinct combinations of some row columns: which one each row has, and a row that has it."""

    __slots__ = ("first", "index", "n", "part", "patterns", "place")

    def __init__(self, index: Array, first: Array) -> None:
        self.index, self.first, self.n = index, first, len(first)
        self.patterns: list[tuple[Array, Array]] | None = None
        self.part: Array = (
            None  # the pattern of each combination, and its place among those with the same
        )
        self.place: Array = None


class Space:
    """Rows times options. Row i goes with the options marked in `options[pattern[i]]`; each such
    pair is a layout."""

    def __init__(self, outer: ByName, inner: ByName, options: Array, pattern: Array) -> None:
        _, first, which = np.unique(_packed(options), return_index=True, return_inverse=True)
        options, pattern = options[first], which.reshape(-1)[pattern]
        some = np.flatnonzero(options.any(axis=1)[pattern])
        order = some[
            np.argsort(pattern[some], kind="stable")
        ]  # rows with the same options side by side
        self.outer: ByName = {name: column[order] for name, column in outer.items()}
        self.inner = inner
        self.options, self.pattern = options, pattern[order]
        self.n, self.width = len(order), options.shape[1]
        self.counts = options.sum(axis=1)[self.pattern]  # layouts of each row
        self.count = int(self.counts.sum())
        rows = np.arange(self.n)
        self.all = Level(rows, rows)
        self.one = Level(np.zeros(self.n, dtype=np.intp), np.zeros(min(1, self.n), dtype=np.intp))
        self._levels = [self.all, self.one]  # kept, so that no two ever share an id
        self._unions: dict[tuple[int, int], Level] = {}
        self._maps: dict[tuple[int, int], Array] = {}
        self._kept: list[tuple[Any, ...]] = []  # so that no two columns ever share an id
        self._made: dict[
            tuple[Any, ...], Column
        ] = {}  # what was asked for already: nothing is computed twice

    def again(self) -> Space:
        """The same layouts, nothing computed."""
        return Space(self.outer, self.inner, self.options, self.pattern)

    @functools.cached_property
    def row(self) -> Array:
        """Row of every layout, in the order of `flat`."""
        return np.repeat(np.arange(self.n), self.counts)

    @functools.cached_property
    def option(self) -> Array:
        """Option of every layout, in the order of `flat`."""
        if not self.n:
            return np.zeros(0, dtype=np.intp)
        kinds, rows = np.unique(self.pattern, return_counts=True)
        return np.concatenate(
            [np.tile(np.flatnonzero(self.options[k]), n) for k, n in zip(kinds, rows, strict=True)]
        )

    # ----------------------------------------------------------------------------------------------

    @functools.cached_property
    def columns(self) -> Columns:
        """The table of layouts, each column on the level of its own values."""
        out: ByName = {}
        for name, column in self.outer.items():
            level = self._of(column)
            out[name] = self._column(level, column[level.first, None])
        for name, column in self.inner.items():
            out[name] = self._column(self.one, column[None, :])
        return Columns(**out)

    def flat(self, rows: Array | None = None) -> Columns:
        """Plain columns of all layouts, or of those at these positions."""
        row, option = (
            (self.row, self.option) if rows is None else (self.row[rows], self.option[rows])
        )
        return Columns(
            **{name: column[row] for name, column in self.outer.items()},
            **{name: column[option] for name, column in self.inner.items()},
        )

    def combinations(self, names: Sequence[str]) -> tuple[ByName, Level]:
        """(plain table of the distinct combinations of these row columns, their level)."""
        level = self.one
        for name in names:
            level = self.union(level, self._of(self.outer[name]))
        return {name: self.outer[name][level.first] for name in names}, level

    def spread(self, level: Level, leaf: Array) -> Column:
        """A plain value per combination of a level as a column."""
        leaf = np.asarray(leaf, dtype=float)
        if leaf.size == 1:
            return self._column(self.one, leaf.reshape(1, 1))
        return self._column(level, leaf[:, None])

    def _column(self, level: Level, values: Array) -> Column:
        """A column of these values, on the smallest level that holds them."""
        if values.size <= _EAGER:
            if values.shape[1] > 1 and (values == values[:, :1]).all():
                values = values[:, :1]
            if values.shape[0] > 1 and (values == values[:1]).all():
                level, values = self.one, values[:1]
        return Column(self, level, values, values.shape[1])

    # ----------------------------------------------------------------------------------------------

    def _of(self, column: Array) -> Level:
        """The level of one row column, whose values are counts or codes."""
        code = column.astype(np.intp)
        if code.min() < 0 or (code != column).any():
            values, code = np.unique(column, return_inverse=True)
            return self._level(code.reshape(-1), len(values))
        return self._level(code, int(code.max()) + 1)

    def _level(self, code: Array, codes: int) -> Level:
        self._levels.append(level := self._distinct(code, codes))
        return level

    def _distinct(self, code: Array, codes: int) -> Level:
        if codes <= _LOOKUP * len(code):
            first = np.full(codes, -1, dtype=np.intp)
            first[code[::-1]] = np.arange(len(code) - 1, -1, -1)
            used = np.flatnonzero(first >= 0)
            used = used[
                np.argsort(first[used])
            ]  # numbered as they come, which keeps rows with the same options together
            number = np.empty(codes, dtype=np.intp)
            number[used] = np.arange(len(used))
            return Level(number[code], first[used])
        _, first, index = np.unique(code, return_index=True, return_inverse=True)
        order = np.argsort(first)
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        return Level(number[index.reshape(-1)], first[order])

    def union(self, a: Level, b: Level) -> Level:
        """The level of the distinct combinations of two."""
        if a is b or b.n == 1 or a is self.all:
            return a
        if a.n == 1 or b is self.all:
            return b
        if id(a) > id(b):
            a, b = b, a
        found = self._unions.get((id(a), id(b)))
        if found is None:
            found = self._level(a.index * b.n + b.index, a.n * b.n)
            # the same combinations under another name
            found = (
                a
                if found.n == a.n
                else b
                if found.n == b.n
                else self.all
                if found.n > _SHARED * self.n
                else found
            )
            self._unions[id(a), id(b)] = found
        return found

    def map(self, of: Level, to: Level) -> Array:
        """For each combination of `of`, which one of `to` (a coarser level) it belongs to."""
        key = (id(of), id(to))
        if key not in self._maps:
            self._maps[key] = to.index[of.first]
        return self._maps[key]

    def patterns(self, level: Level) -> list[tuple[Array, Array]]:
        """(combinations, options that any layout of theirs has) of a level, combinations with the
        same options together."""
        if level.patterns is None:
            met = np.zeros((level.n, len(self.options)), dtype=bool)
            met[level.index, self.pattern] = True
            _, first, which = np.unique(_packed(met), return_index=True, return_inverse=True)
            level.part = np.empty(level.n, dtype=np.intp)
            level.place = np.empty(level.n, dtype=np.intp)
            level.patterns = []
            for i in np.argsort(first):
                rows = np.flatnonzero(which.reshape(-1) == i)
                level.part[rows], level.place[rows] = len(level.patterns), np.arange(len(rows))
                level.patterns.append(
                    (rows, np.flatnonzero(self.options[met[first[i]]].any(axis=0)))
                )
        return level.patterns

    # ----------------------------------------------------------------------------------------------

    def values(self, *columns: Any, tick: Callable[[float], None] | None = None) -> list[Array]:
        """Plain arrays of one value per layout, in the order of `flat`. tick: called with the share
        done, now and then."""
        wanted = [x if isinstance(x, Column) else self.spread(self.one, x) for x in columns]
        self._settle([x for x in wanted if x.op is not None])
        out = [np.empty(self.count) for _ in wanted]
        counts = self.counts
        ends = np.cumsum(counts)

        def keep(rows: Array, options: Array, found: list[Array]) -> None:
            begin = ends[rows[0]] - counts[rows[0]]
            whole = slice(begin, ends[rows[-1]])  # rows with the same options lie side by side
            for target, value in zip(out, found, strict=True):
                target[whole] = np.broadcast_to(value, (len(rows), len(options))).reshape(-1)
            if tick is not None:
                tick(ends[rows[-1]] / max(self.count, 1))

        self.forget()
        self._run(self.all, wanted, keep)
        return out

    def forget(self) -> None:
        """Let go of what was computed and is in nobody's hands."""
        self._made.clear()
        self._kept.clear()

    def release(self) -> None:
        """Let go of all columns, which hold the space as it holds them: memory that else waits for
        the garbage collector."""
        self.forget()
        self.__dict__.pop("columns", None)

    def _settle(self, wanted: Sequence[Column], rows_too: bool = False) -> None:
        """Evaluate what was put off on levels that many rows share, the coarsest first; the rest
        stays put off unless rows_too."""
        nodes = _reached(wanted)
        taken: dict[int, tuple[Level, list[Column]]] = {}
        inner = {id(node) for node in nodes}
        used_elsewhere = {
            id(x)
            for node in nodes
            for x in node.columns()
            if id(x) in inner and x.level is not node.level
        }
        for node in nodes:
            if (rows_too or node.level is not self.all) and id(node) in used_elsewhere | {
                id(x) for x in wanted
            }:
                taken.setdefault(id(node.level), (node.level, []))[1].append(node)
        for level, some in sorted(taken.values(), key=lambda pair: pair[0].n):
            shapes = [(len(rows), len(options)) for rows, options in self.patterns(level)]
            parts: list[list[Array]] = [[] for _ in some]

            def keep(
                rows: Array,
                options: Array,
                values: list[Array],
                level: Level = level,
                some: list[Column] = some,
                shapes: list[tuple[int, int]] = shapes,
                parts: list[list[Array]] = parts,
            ) -> None:
                part, start = level.part[rows[0]], level.place[rows[0]]
                for node, held, value in zip(some, parts, values, strict=True):
                    if len(held) <= part:
                        held.append(
                            np.empty(
                                (shapes[part][0], min(node.width, shapes[part][1])), value.dtype
                            )
                        )
                    held[part][start : start + len(rows)] = value

            self._run(level, some, keep)
            for node, held in zip(some, parts, strict=True):
                node.parts, node.op, node.args = held, None, ()

    def _run(
        self,
        level: Level,
        wanted: Sequence[Column],
        keep: Callable[[Array, Array, list[Array]], None],
    ) -> None:
        """Evaluate columns on a level, block by block of combinations with the same options."""
        nodes = _reached(wanted)
        slots: dict[int, int] = {}
        leaves: list[Column] = []
        for x in [*(y for node in nodes for y in node.columns()), *wanted]:
            if x.op is None and id(x) not in slots:
                slots[id(x)] = len(leaves)
                leaves.append(x)
        for node in nodes:
            slots[id(node)] = len(slots)
        last: dict[int, int] = {}
        for i, node in enumerate(nodes):
            for x in node.columns():
                last[slots[id(x)]] = i
        kept = {slots[id(x)] for x in wanted}
        steps = [
            (
                node.op,
                [(slots[id(a)], None) if isinstance(a, Column) else (-1, a) for a in node.args],
                slots[id(node)],
                [
                    s
                    for s in {slots[id(x)] for x in node.columns()}
                    if last[s] == i and s not in kept and s >= len(leaves)
                ],
            )
            for i, node in enumerate(nodes)
        ]
        places = [slots[id(x)] for x in wanted]
        held: list[Any] = [None] * len(slots)
        for rows, options in self.patterns(level):
            at: dict[int, Array] = {}
            # of every leaf, the part that these combinations need, and which row of it each takes
            cut = []
            for x in leaves:
                above = rows if x.level is level else at.get(id(x.level))
                if above is None:
                    above = at[id(x.level)] = self.map(level, x.level)[rows]
                cut.append(x.cut(above, options))
            size = max(1, _BLOCK // len(options))
            for start in range(0, len(rows), size):
                part = slice(start, start + size)
                for slot, (values, index) in enumerate(cut):
                    held[slot] = values if index is None else values.take(index[part], axis=0)
                for op, args, slot, done in steps:
                    held[slot] = op(*[held[s] if s >= 0 else value for s, value in args])  # type: ignore[misc]
                    for s in done:
                        held[s] = None
                keep(rows[part], options, [held[s] for s in places])


def _packed(mask: Array) -> Array:
    """Rows of booleans as one value each."""
    bits = np.ascontiguousarray(np.packbits(mask, axis=1))
    return bits.view(f"S{bits.shape[1]}").reshape(-1)


def _reached(wanted: Sequence[Column]) -> list[Column]:
    """What was put off and is needed, each after what it needs."""
    out: list[Column] = []
    seen: set[int] = set()
    stack: list[tuple[Column, bool]] = [(x, False) for x in reversed(wanted)]
    while stack:
        node, ready = stack.pop()
        if ready:
            out.append(node)
            continue
        if node.op is None or id(node) in seen:
            continue
        seen.add(id(node))
        stack.append((node, True))
        stack += [(x, False) for x in node.columns() if x.op is not None and id(x) not in seen]
    return out


class Column(np.lib.mixins.NDArrayOperatorsMixin):
    """Values per combination of a level, shape (combinations, 1 or options), or the operation that
    will make them."""

    __slots__ = ("args", "level", "op", "parts", "space", "values", "width")

    def __init__(
        self,
        space: Space,
        level: Level,
        values: Array,
        width: int,
        op: Callable[..., Array] | None = None,
        args: tuple[Any, ...] = (),
    ) -> None:
        self.space, self.level, self.values, self.width, self.op, self.args = (
            space,
            level,
            values,
            width,
            op,
            args,
        )
        self.parts: list[Array] | None = (
            None  # once evaluated: values of the combinations and options of every pattern
        )

    @property
    def breadth(self) -> int:
        """Values it has or will have: sums begin with the least."""
        return self.level.n * self.width

    def columns(self) -> list[Column]:
        """What it will be made from."""
        return [x for x in self.args if isinstance(x, Column)]

    def at(self, level: Level) -> Array:
        """Its values on a finer level."""
        if self.level is level or self.level.n == 1:
            return self.known()
        return self.known().take(self.space.map(level, self.level), axis=0)

    def cut(self, rows: Array, options: Array) -> tuple[Array, Array | None]:
        """(values of some options, row of them for each of these combinations of its own level;
        None: one for all)."""
        every = self.width == 1 or len(options) == self.width
        if self.parts is None:
            values = self.values if every else self.values.take(options, axis=1)
            return values, None if self.level.n == 1 else rows
        patterns = self.space.patterns(self.level)
        part = self.level.part[rows]
        if (part == part[0]).all():
            values, own = self.parts[part[0]], patterns[part[0]][1]
            if self.width > 1 and len(own) != len(options):
                values = values.take(np.searchsorted(own, options), axis=1)
            return values, self.level.place[rows]
        values = self.known()
        return values if every else values.take(options, axis=1), rows

    def known(self) -> Array:
        """Its values, now."""
        if self.op is not None:
            self.space._settle([self], rows_too=True)
        if self.parts is not None:
            self.values = np.zeros((self.level.n, self.width), self.parts[0].dtype)
            for (rows, options), part in zip(
                self.space.patterns(self.level), self.parts, strict=True
            ):
                self.values[rows[:, None], options if self.width > 1 else [0]] = part
            self.parts = None
        return self.values

    def constant(self, value: float) -> bool:
        """Whether it is this number throughout."""
        return (
            self.values is not None and self.values.size == 1 and bool(self.values[0, 0] == value)
        )

    def __array__(self, *_: Any, **__: Any) -> Array:
        raise TypeError("a factored column is no array; ask its space for values")

    def __bool__(self) -> bool:
        raise TypeError("the truth of a column is one value per layout")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            return NotImplemented
        if len(inputs) == 2:
            a, b = inputs
            if ufunc is np.add:
                if _is(a, 0.0) and _numeric(b):
                    return b
                if _is(b, 0.0) and _numeric(a):
                    return a
            elif ufunc is np.multiply:
                for x, other in ((a, b), (b, a)):
                    if _is(x, 1.0) and isinstance(other, Column) and _numeric(other):
                        return other
                    if _is(x, 0.0):
                        return self.space.spread(self.space.one, 0.0)
            elif (
                (ufunc is np.subtract and _is(b, 0.0)) or (ufunc is np.true_divide and _is(b, 1.0))
            ) and _numeric(a):
                return a
        return apply(ufunc, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from planner.estimate.factored.functions import FUNCTIONS

        known = FUNCTIONS.get(function)
        return NotImplemented if known is None else known(*args, **kwargs)


def _is(x: Any, value: float) -> bool:
    return x.constant(value) if isinstance(x, Column) else np.ndim(x) == 0 and float(x) == value


_TRUTHS = (
    np.equal,
    np.not_equal,
    np.less,
    np.less_equal,
    np.greater,
    np.greater_equal,
    np.bitwise_and,
    np.bitwise_or,
    np.invert,
)


def _numeric(x: Any) -> bool:
    """Whether it holds numbers, not truths (whose sum is a disjunction)."""
    if not isinstance(x, Column):
        return True
    if x.op is None:
        return bool((x.values if x.parts is None else x.parts[0]).dtype != bool)
    return x.op not in _TRUTHS


def apply(operation: Callable[..., Array], *args: Any) -> Any:
    """An elementwise operation on columns and numbers. With plain arrays only, it is called as it
    is."""
    columns = [x for x in args if isinstance(x, Column)]
    if not columns:
        return operation(*args)
    args = tuple(x if isinstance(x, Column) else _number(x) for x in args)
    space, level, width, ready = (
        columns[0].space,
        columns[0].level,
        columns[0].width,
        columns[0].op is None,
    )
    key = (operation, *(id(x) if isinstance(x, Column) else (x,) for x in args))
    found = space._made.get(key)
    if found is not None:
        return found
    for x in columns[1:]:
        level = space.union(level, x.level)
        width = max(width, x.width)
        ready = ready and x.op is None
    if not ready or level.n * width > _EAGER:
        made = Column(space, level, None, width, operation, args)
    else:
        made = space._column(
            level,
            np.asarray(operation(*(x.at(level) if isinstance(x, Column) else x for x in args))),
        )
    space._made[key] = made
    space._kept.append(args)
    return made


def _number(x: Any) -> Any:
    if isinstance(x, Column) or (np.ndim(x) == 0 and not isinstance(x, np.ndarray)):
        return x
    if np.size(x) == 1:  # arrays without a dimension cannot be looked up either
        return float(np.asarray(x).reshape(-1)[0])
    raise TypeError(f"a plain array of {np.size(x)} values beside a factored column")


def rowwise(function: Callable[..., Array], *args: Any) -> Any:
    """A function of plain columns of equal length, applied to columns of either kind."""
    if not any(isinstance(x, Column) for x in args):
        return function(*args)

    def flat(*values: Array) -> Array:
        wide = np.broadcast_arrays(*values)
        return np.asarray(function(*(x.reshape(-1) for x in wide))).reshape(wide[0].shape)

    return apply(flat, *args)


def restricted(space: Space, holds: Any) -> tuple[Space, int]:
    """(the layouts of a space for which a column of truths holds, how many there are for which it
    does not)."""
    if not isinstance(holds, Column):
        return (
            (space, 0)
            if bool(holds)
            else (
                Space(space.outer, space.inner, space.options & False, space.pattern),
                space.count,
            )
        )
    values = holds.known().astype(bool)
    if values.all():
        return space, 0
    pairs = space.union(space._level(space.pattern, len(space.options)), holds.level)
    options = space.options[space.pattern[pairs.first]] & values[holds.level.index[pairs.first]]
    left = Space(space.outer, space.inner, options, pairs.index)
    return left, space.count - left.count
