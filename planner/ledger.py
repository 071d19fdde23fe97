"""Named leaves that add up, formulas that know their own source, and the recorder behind
`--explain`.

A ledger is a plain dict from a path-like name ("parameters/attention/qkv") to a number or an array
of one number per layout. A formula is a pure function marked with `@formula`; while `recording()`
is on, each call leaves a `Call` with numbers in and out.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np

# A float64, an array of one value per layout, or a factored column; broadcasting applies
# throughout. `Any`, since a union would need a cast at each of a thousand operations (numpy types
# the sum of two unions as neither), and only numpy's protocols treat a factored column as an array.
# What a formula takes and gives is tested for every formula instead: a scalar, a vector, any order
# of rows, units.
Array = Any
Ledger = dict[str, Array]

Kind = Literal["measured", "vendor", "assumed"]


class Sourced(float):
    """A float that remembers where it was read. Arithmetic yields plain floats: provenance belongs
    to inputs only."""

    __slots__ = ("date", "kind", "source", "unit")

    unit: str
    kind: Kind
    source: str
    date: str

    def __new__(
        cls, value: float, unit: str = "1", kind: Kind = "assumed", source: str = "", date: str = ""
    ) -> Sourced:
        self = super().__new__(cls, value)
        self.unit, self.kind, self.source, self.date = unit, kind, source, date
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (Sourced, (float(self), self.unit, self.kind, self.source, self.date))


def rowwise(function: Callable[..., Array], *columns: Array, boolean: bool = False) -> Array:
    """An elementwise function of plain arrays of equal length, applied to columns of any kind.

    Where code that knows nothing of columns is called: numbers and arrays are broadcast and made
    flat, and a factored column has `elementwise`, which does that where its values are evaluated.
    boolean: whether the function makes truths.
    """
    for column in columns:
        if (elementwise := getattr(column, "elementwise", None)) is not None:
            return elementwise(function, columns, boolean)
    return flattened(function, *columns)


def flattened(function: Callable[..., Array], *columns: Array) -> Array:
    """A function of plain arrays of equal length, applied to numbers and arrays that broadcast."""
    shapes = {getattr(column, "shape", ()) for column in columns}
    if len(shapes) == 1 and len(shape := shapes.pop()) == 1:  # nothing to broadcast
        return np.asarray(function(*columns)).reshape(shape)
    wide = np.broadcast_arrays(*columns)
    result = function(*(column.reshape(-1) for column in wide))
    return np.asarray(result).reshape(wide[0].shape)[()]


def plug_in(
    where: str,
    function: Callable[[Any], Mapping[str, Array]],
    record: Any,
    names: Sequence[str],
    boolean: bool = False,
) -> Ledger:
    """Results of a function of a plug-in, by name. A name that it leaves out is left out, or 0.

    where: which plug-in it is, noted on errors.

    record: what the function takes, a dataclass of which every field that is declared as an array
    (a ledger, a table of columns) has a value per layout. The function is given plain arrays of
    equal length that cannot be written to, whatever the columns of the estimate are, and returns
    plain arrays of that length, or numbers. boolean: whether the function makes truths.
    """
    columns: list[Array] = []
    places: dict[int, int] = {}  # by identity: the same array is given once

    def placed(column: Array) -> int:
        if id(column) not in places:
            places[id(column)] = len(columns)
            columns.append(column)
        return places[id(column)]

    order = _of_arrays(record, placed)

    def call(*arrays: Array) -> Ledger:
        try:
            return _named(function(_of_arrays(order, arrays.__getitem__)), names, len(arrays[0]))
        except Exception as error:
            error.add_note(f"in {where}")
            raise

    for column in columns:
        if (several := getattr(column, "several", None)) is not None:
            return several(call, columns, names, boolean)
    return flattened_each(call, columns, names, boolean)


def flattened_each(
    function: Callable[..., Ledger], columns: Sequence[Array], names: Sequence[str], boolean: bool
) -> Ledger:
    """`flattened` of a function with several results, which is not called for no rows."""
    wide = np.broadcast_arrays(*columns)
    shape = wide[0].shape
    arrays = [np.asarray(column, dtype=float).reshape(-1).view() for column in wide]
    for array in arrays:
        array.flags.writeable = False
    results = function(*arrays) if arrays[0].size else dict.fromkeys(names, arrays[0])
    dtype = bool if boolean else float
    return {name: np.asarray(leaf, dtype).reshape(shape)[()] for name, leaf in results.items()}


def _named(results: Mapping[str, Array], names: Sequence[str], rows: int) -> Ledger:
    if unknown := results.keys() - set(names):
        raise ValueError(f"{', '.join(sorted(unknown))} is not declared; {', '.join(names)} are")
    return {name: np.broadcast_to(leaf, (rows,)) for name, leaf in results.items()}


_OF_ARRAYS = ("Array", "Array | None", "Ledger", "Columns")


def _of_arrays(record: Any, change: Callable[[Array], Any]) -> Any:
    """The record with its arrays changed; what is the same for all layouts stays."""
    names = (field.name for field in dataclasses.fields(record) if field.type in _OF_ARRAYS)
    values = {name: value for name in names if (value := getattr(record, name)) is not None}
    return dataclasses.replace(record, **{n: _changed(v, change) for n, v in values.items()})


def _changed(value: Any, change: Callable[[Array], Any]) -> Any:
    if isinstance(value, dict):
        return {name: change(leaf) for name, leaf in value.items()}
    return _of_arrays(value, change) if dataclasses.is_dataclass(value) else change(value)


def total(ledger: Mapping[str, Array]) -> Array:
    """Sum of all leaves (0.0 for an empty ledger), those with the fewest numbers first: what
    differs between few layouts is added up before it is spread over many."""
    value: Array = 0.0
    for leaf in sorted(ledger.values(), key=_size):
        value = value + leaf
    return value


def _size(leaf: Array) -> int:
    return getattr(leaf, "size", 1)  # np.size takes five times as long


def under(prefix: str, ledger: Mapping[str, Array]) -> Ledger:
    """The leaves one level deeper: under("layer", {"qkv": 1}) -> {"layer/qkv": 1}."""
    return {f"{prefix}/{name}": leaf for name, leaf in ledger.items()}


def merge(*ledgers: Mapping[str, Array]) -> Ledger:
    """Add ledgers leaf by leaf."""
    out: Ledger = {}
    for ledger in ledgers:
        for name, leaf in ledger.items():
            out[name] = out[name] + leaf if name in out else leaf
    return out


def scale(ledger: Mapping[str, Array], factor: Array) -> Ledger:
    """Multiply every leaf."""
    return {name: leaf * factor for name, leaf in ledger.items()}


def group(ledger: Mapping[str, Array], depth: int = 1) -> Ledger:
    """Sum leaves that share their first `depth` path parts."""
    out: Ledger = {}
    for name, leaf in ledger.items():
        key = "/".join(name.split("/")[:depth])
        out[key] = out[key] + leaf if key in out else leaf
    return out


def first(leaf: Array) -> float:
    """The first value of a leaf as a float: the value of a table with one row."""
    return float(np.asarray(leaf).reshape(-1)[0])


def firsts(ledger: Mapping[str, Array]) -> dict[str, float]:
    """The first value of every leaf."""
    return {name: first(leaf) for name, leaf in ledger.items()}


def each(record: Any, change: Callable[[Any], Any]) -> Any:
    """A record, with every number in it changed; text, and what has none, stays."""
    kind: Any = type(record)
    if kind is float or kind is np.ndarray:  # by far the most
        return change(record)
    if isinstance(record, dict):
        return {name: each(value, change) for name, value in record.items()}
    if isinstance(record, list | tuple):
        changed = [each(value, change) for value in record]
        return kind(*changed) if hasattr(record, "_fields") else kind(changed)
    if (names := _field_names(kind)) is not None:
        return kind(**{name: each(getattr(record, name), change) for name in names})
    return record if record is None or isinstance(record, str) else change(record)


@functools.cache
def _field_names(kind: Any) -> tuple[str, ...] | None:
    """Names of the fields of a dataclass; None for any other type."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(field.name for field in dataclasses.fields(kind))


@dataclass(frozen=True)
class Formula:
    """The declaration of a formula; `docs/formulas` is generated from these."""

    name: str
    module: str
    unit: str
    equation: str
    source: str
    doc: str


FORMULAS: dict[str, Formula] = {}

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Call:
    """One recorded evaluation of a formula."""

    formula: Formula
    inputs: dict[str, Any]
    output: Any = None
    calls: list[Call] = field(default_factory=list)


# one stack per thread and task, so that a web request that explains does not record its neighbours
_recorder: ContextVar[list[Call] | None] = ContextVar("recorder", default=None)


def formula(unit: str, equation: str, source: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a pure function as a formula with its unit, equation and source."""

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        module = function.__module__.removeprefix("planner.")
        formula = Formula(
            function.__name__,
            module,
            unit,
            equation,
            source,
            inspect.cleandoc(function.__doc__ or ""),
        )
        FORMULAS[f"{module}.{function.__name__}"] = formula
        names = list(inspect.signature(function).parameters)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            stack = _recorder.get()
            if stack is None:
                return function(*args, **kwargs)
            inputs = {**dict(zip(names, args, strict=False)), **kwargs}
            record = Call(formula, inputs)
            stack[-1].calls.append(record)
            stack.append(record)
            try:
                record.output = function(*args, **kwargs)
            finally:
                stack.pop()
            return record.output

        return call

    return wrap


@contextmanager
def recording(title: str = "estimate") -> Iterator[Call]:
    """Record every formula called inside the block as a tree of `Call`s."""
    root = Call(Formula(title, "", "", "", "", ""), {})
    token = _recorder.set([root])
    try:
        yield root
    finally:
        _recorder.reset(token)


@contextmanager
def unrecorded() -> Iterator[None]:
    """Formulas that are called inside the block do not appear in the tree."""
    token = _recorder.set(None)
    try:
        yield
    finally:
        _recorder.reset(token)


def is_recording() -> bool:
    """Whether formulas leave their calls: what was evaluated before cannot stand for them then."""
    return _recorder.get() is not None


@contextmanager
def section(title: str) -> Iterator[None]:
    """Name a group of calls in the recorded tree; costs nothing when nothing is recorded."""
    stack = _recorder.get()
    if stack is None:
        yield
        return
    record = Call(Formula(title, "", "", "", "", ""), {})
    stack[-1].calls.append(record)
    stack.append(record)
    try:
        yield
    finally:
        stack.pop()
