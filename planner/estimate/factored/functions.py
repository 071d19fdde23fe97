"""What numpy's functions do with factored columns; those that are not here are refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from planner.estimate.factored.column import Column, Space, apply
from planner.ledger import Array


def _where(condition: Any, a: Any, b: Any) -> Any:
    if not isinstance(condition, Column):
        return a if bool(np.all(condition)) else b
    if condition.values is not None:
        if condition.values.all():
            return _column(condition.space, a)
        if not condition.values.any():
            return _column(condition.space, b)
    return apply(np.where, condition, a, b)


def _column(space: Space, x: Any) -> Column:
    if isinstance(x, Column):
        return x
    return space._column(
        space.one, np.full((1, 1), x, dtype=bool if isinstance(x, bool | np.bool_) else float)
    )


def _select(conditions: Sequence[Any], choices: Sequence[Any], default: Any = 0.0) -> Any:
    first = conditions[0]
    if all(x.values is not None and x.level.n == 1 for x in conditions) and any(
        x.width > 1 for x in conditions
    ):
        space = first.space
        code = np.select(
            [x.values for x in conditions],
            [np.full((1, 1), i) for i in range(len(choices))],
            len(choices),
        )
        return apply(
            _by_option,
            space._column(space.one, np.broadcast_to(code, (1, space.width))),
            *choices,
            default,
        )
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


def _like(value: float) -> Callable[..., Column]:
    def made(x: Column, dtype: Any = float, **_: Any) -> Column:
        return x.space._column(x.space.one, np.full((1, 1), value, dtype=dtype))

    return made


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.where: _where,
    np.select: _select,
    np.any: lambda x: bool(x.known().any()),
    np.all: lambda x: bool(x.known().all()),
    np.max: lambda x: x.known().max(),
    np.isin: lambda x, among: apply(lambda values: np.isin(values, among), x),
    np.clip: lambda x, low, high: np.minimum(np.maximum(x, low), high),
    np.zeros_like: _like(0.0),
    np.ones_like: _like(1.0),
    np.full_like: lambda x, value, **_: _column(x.space, value),
    np.ndim: lambda _: 1,
}
