"""A column of a space: values per distinct combination, or the operation that will make them.

numpy's operators and functions on columns make columns. Results of few values are computed at once;
larger ones are deferred and evaluated in blocks (evaluate.py), if anybody asks for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.estimate.factored.levels import Level, Levels
from planner.ledger import Array, Ledger, flattened, flattened_each
from planner.specs.columns import Columns

EAGER = 32768  # values up to which a column is computed at once: numpy then costs less than a plan
_NUMBERS = itertools.count()
# what numpy's functions do with columns (functions.py fills it); others are refused by numpy
FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}

_COMPARISONS = {
    *(np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
    *(np.bitwise_and, np.bitwise_or, np.logical_and, np.logical_or, np.logical_not, np.invert),
}
_NOTHING = np.zeros((1, 1))
_NEUTRAL_RIGHT = (np.add, np.subtract, np.multiply, np.true_divide)


@dataclass(frozen=True, slots=True)
class Deferred:
    """Values that an elementwise operation on columns and numbers will make."""

    operation: Callable[..., Array]
    operands: tuple[Any, ...]

    @property
    def columns(self) -> list[Column]:
        """The columns among the operands."""
        return [x for x in self.operands if isinstance(x, Column)]


@dataclass(frozen=True, slots=True)
class Grouped:
    """Values where they are needed: of each group of the level an array of (combinations, options
    of the group or 1)."""

    parts: list[Array]


def _operators(ufunc: Any) -> tuple[Any, Any]:
    """An operator and its reflection."""
    return (lambda a, b: combined(ufunc, a, b)), (lambda a, b: combined(ufunc, b, a))


class Column(np.lib.mixins.NDArrayOperatorsMixin):
    """Values per combination of a level and per option, or one for all options.

    content: the values as an array of (combinations, options or 1), as `Grouped` parts, or what
    makes them. `dense` and evaluate.py replace it by another form of the same values, so that
    nothing is evaluated twice; no reader can tell but by the clock.
    """

    __slots__ = ("boolean", "content", "level", "levels", "number", "width")

    def __init__(
        self,
        levels: Levels,
        level: Level,
        content: Array | Deferred | Grouped,
        width: int,
        boolean: bool,
    ) -> None:
        self.levels, self.level, self.content = levels, level, content
        self.width = width  # 1, or one value per option
        self.boolean = boolean
        self.number = next(_NUMBERS)  # names the column in caches: columns are not compared

    @property
    def deferred(self) -> Deferred | None:
        """The deferred computation of its values, if not evaluated yet."""
        return self.content if isinstance(self.content, Deferred) else None

    @property
    def constant(self) -> Any:
        """The value of a constant column; None if layouts differ."""
        known = self.content
        return known[0, 0] if isinstance(known, np.ndarray) and known.size == 1 else None

    @property
    def size(self) -> int:
        """Values it holds or will hold."""
        return self.level.count * self.width

    def __array__(self, *_: Any, **__: Any) -> Array:
        raise TypeError("a factored column is not an array; ask its space for values")

    def __bool__(self) -> bool:
        raise TypeError("the truth of a column is one value per layout")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            return NotImplemented
        return combined(ufunc, *inputs) if len(inputs) == 2 else apply(ufunc, *inputs)

    # the most frequent ones, without the way through numpy's dispatch
    __add__, __radd__ = _operators(np.add)
    __sub__, __rsub__ = _operators(np.subtract)
    __mul__, __rmul__ = _operators(np.multiply)
    __truediv__, __rtruediv__ = _operators(np.true_divide)

    def elementwise(
        self, function: Callable[..., Array], operands: Sequence[Any], boolean: bool
    ) -> Any:
        """A function of plain arrays of equal length, see `planner.ledger.rowwise`."""
        return apply(_Flattened(function), *operands, boolean=boolean)

    def several(
        self,
        function: Callable[..., Ledger],
        operands: Sequence[Any],
        names: Sequence[str],
        boolean: bool,
    ) -> Ledger:
        """A function of plain arrays with several results, see `planner.ledger.plug_in`."""
        several = _Several(function, tuple(names), boolean)
        return {n: apply(_Result(several, n), *operands, boolean=boolean) for n in names}

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        known = FUNCTIONS.get(function)
        return NotImplemented if known is None else known(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class _Flattened:
    """A function of plain arrays of equal length as an operation: equal ones are one key."""

    function: Callable[..., Array]

    def __call__(self, *values: Array) -> Array:
        return flattened(self.function, *values)


@dataclass(slots=True, eq=False)
class _Several:
    """A function of plain arrays with several results. A block requests them in turn, so the last
    operands are cached with their results."""

    function: Callable[..., Ledger]
    names: tuple[str, ...]
    boolean: bool
    last: tuple[tuple[Array, ...], Ledger] | None = None

    def __call__(self, values: tuple[Array, ...]) -> Ledger:
        last = self.last
        if last is None or any(a is not b for a, b in zip(values, last[0], strict=True)):
            results = flattened_each(self.function, values, self.names, self.boolean)
            self.last = last = values, results
        return last[1]


@dataclass(frozen=True, slots=True)
class _Result:
    """One of several results as an operation."""

    of: _Several
    name: str

    def __call__(self, *values: Array) -> Array:
        return self.of(values).get(self.name, _NOTHING)


def is_factored(table: Columns) -> bool:
    """Whether a table has factored columns: a search reads a few sums of it, and never lists its
    rows."""
    return isinstance(table.tp, Column)


def column_of(levels: Levels, level: Level, values: Array) -> Column:
    """A column of these values (combinations, options or 1), on the smallest level that holds
    them."""
    if values.size <= EAGER:
        rows, options = values.shape  # corners first: most columns differ there
        if options > 1 and values[0, 0] == values[0, -1] and (values == values[:, :1]).all():
            values = values[:, :1]
        if rows > 1 and values[0, 0] == values[-1, 0] and (values == values[:1]).all():
            level, values = levels.constant, values[:1]
    return Column(levels, level, values, values.shape[1], values.dtype == bool)


def constant(levels: Levels, value: Any) -> Column:
    """A column with one number or truth value for all layouts."""
    dtype = bool if isinstance(value, bool | np.bool_) else float
    return column_of(levels, levels.constant, np.full((1, 1), value, dtype=dtype))


def dense(column: Column) -> Array:
    """The values of a column that is not deferred as one array; 0 where no layout is."""
    if isinstance(column.content, Grouped):
        parts = column.content.parts
        values = np.zeros((column.level.count, column.width), parts[0].dtype)
        groups = column.levels.groups(column.level).members
        for (members, options), part in zip(groups, parts, strict=True):
            values[members[:, None], options if column.width > 1 else [0]] = part
        column.content = values
    return column.content


def values_on(column: Column, level: Level) -> Array:
    """Values on a finer level."""
    if column.level is level or column.level.count == 1:
        return dense(column)
    return dense(column).take(column.levels.map(level, column.level), axis=0)


def combined(ufunc: Any, a: Any, b: Any) -> Any:
    """An operation on two operands of which one is a column at least."""
    levels = a.levels if isinstance(a, Column) else b.levels
    short = _without_work(levels, ufunc, a, b)
    return apply(ufunc, a, b) if short is None else short


def _without_work(levels: Levels, ufunc: Any, a: Any, b: Any) -> Any:
    """The result where an operand is neutral (x + 0, 1 * x) or absorbs the other (0 * x), else
    None. Booleans are left out: their sum is a disjunction."""
    first, second = _constant(a), _constant(b)
    if first is None and second is None:
        return None
    if ufunc is np.multiply and (first == 0.0 or second == 0.0):
        return constant(levels, 0.0)
    same = 0.0 if ufunc in (np.add, np.subtract) else 1.0
    if first == same and ufunc in (np.add, np.multiply) and _is_number(b):
        return b
    if second == same and ufunc in _NEUTRAL_RIGHT and _is_number(a):
        return a
    return None


def _constant(x: Any) -> Any:
    """Value of an operand that is equal for all layouts, else None."""
    if isinstance(x, Column):
        return x.constant
    return x if isinstance(x, float) or np.ndim(x) == 0 else None


def _is_number(x: Any) -> bool:
    return isinstance(x, Column) and not x.boolean


def apply(operation: Callable[..., Array], *operands: Any, boolean: bool | None = None) -> Any:
    """An elementwise operation on columns and numbers. With plain arrays only, it is called as it
    is.

    boolean: whether it makes truths; by default numpy's comparisons do.
    """
    columns: list[Column] = []
    key: list[Any] = [operation]
    given: list[Any] = []
    for x in operands:
        if isinstance(x, Column):
            columns.append(x)
            key.append(x.number)
        else:
            x = x if isinstance(x, float) else _number(x)
            key.append((x,))
        given.append(x)
    if not columns:
        return operation(*operands)
    cache = columns[0].levels.computed
    result = cache.get(call := tuple(key))
    if result is None:
        truths = operation in _COMPARISONS if boolean is None else boolean
        result = cache[call] = _applied(operation, tuple(given), columns, truths)
    return result


def _applied(
    operation: Callable[..., Array], operands: tuple[Any, ...], columns: list[Column], boolean: bool
) -> Column:
    first = columns[0]
    levels, level, width, later = first.levels, first.level, first.width, first.deferred is not None
    for x in columns[1:]:
        level = levels.union(level, x.level)
        width = max(width, x.width)
        later = later or x.deferred is not None
    if later or level.count * width > EAGER:
        return Column(levels, level, Deferred(operation, operands), width, boolean)
    values = [values_on(x, level) if isinstance(x, Column) else x for x in operands]
    return column_of(levels, level, np.asarray(operation(*values)))


def _number(x: Any) -> Any:
    if np.ndim(x) == 0 and not isinstance(x, np.ndarray):
        return x
    if np.size(x) == 1:  # arrays without a dimension cannot be looked up either
        return float(np.asarray(x).reshape(-1)[0])
    raise TypeError(f"a plain array of {np.size(x)} values beside a factored column")
