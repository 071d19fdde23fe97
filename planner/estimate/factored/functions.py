"""numpy's functions on columns; numpy refuses functions that are not listed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from planner.estimate.factored.column import FUNCTIONS, Column, apply, column_of, constant
from planner.estimate.factored.evaluate import known
from planner.ledger import Array


def _where(condition: Any, a: Any, b: Any) -> Any:
    if not isinstance(condition, Column):
        return a if bool(np.all(condition)) else b
    values = condition.content
    if isinstance(values, np.ndarray) and (values.all() or not values.any()):
        chosen = a if values.all() else b
        return chosen if isinstance(chosen, Column) else constant(condition.levels, chosen)
    return apply(np.where, condition, a, b, boolean=_is_boolean(a) and _is_boolean(b))


def _is_boolean(x: Any) -> bool:
    return x.boolean if isinstance(x, Column) else isinstance(x, bool | np.bool_)


def _select(conditions: Sequence[Column], choices: Sequence[Any], default: Any = 0.0) -> Any:
    """Conditions that depend on the option only are evaluated option by option; others are a chain
    of `where`."""
    tests: list[Any] = [x.content for x in conditions]
    of_options = all(isinstance(x, np.ndarray) and len(x) == 1 for x in tests)
    if of_options and any(x.width > 1 for x in conditions):
        levels = conditions[0].levels
        numbers = [np.full((1, 1), i) for i in range(len(choices))]
        code = np.select(tests, numbers, len(choices))
        return apply(_by_option, column_of(levels, levels.constant, code), *choices, default)
    out = default
    for condition, choice in reversed(list(zip(conditions, choices, strict=True))):
        out = _where(condition, choice, out)
    return out


def _by_option(code: Array, *choices: Array) -> Array:
    """For every option the values of one of several columns."""
    if code.shape[1] == 1:
        return np.asarray(choices[int(code[0, 0])])
    out = np.empty((max(np.shape(x)[0] for x in choices if np.ndim(x)), code.shape[1]))
    edges = np.flatnonzero(np.diff(code[0], prepend=-1, append=-1))
    for begin, end in itertools.pairwise(edges.tolist()):
        x = choices[int(code[0, begin])]
        out[:, begin:end] = x if np.ndim(x) == 0 or np.shape(x)[1] == 1 else x[:, begin:end]
    return out


def _is_in(x: Column, among: Sequence[float]) -> Any:
    return apply(lambda values: np.isin(values, among), x, boolean=True)


def _like(value: Any) -> Callable[..., Column]:
    def like(x: Column, dtype: Any = float, **_: Any) -> Column:
        return constant(x.levels, np.dtype(dtype).type(value))

    return like


FUNCTIONS.update(
    {
        np.where: _where,
        np.select: _select,
        np.any: lambda x: bool(known(x).any()),
        np.all: lambda x: bool(known(x).all()),
        np.max: lambda x: known(x).max(),
        np.isin: _is_in,
        np.clip: lambda x, low, high: np.minimum(np.maximum(x, low), high),
        np.zeros_like: _like(0.0),
        np.ones_like: _like(1.0),
        np.full_like: lambda x, value, **_: constant(x.levels, value),
        np.size: lambda x: x.size,
    }
)
