"""Constraints of a request as boolean columns: of the layout's own columns, or of the memory it
needs."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from planner.estimate.memory import needed
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.plan import Plan
from planner.specs.where import Constraint, codes

_COMPARE: dict[str, Callable[[Array, float], Array]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def holds(plan: Plan, constraint: Constraint, columns: Columns) -> Array:
    """True where a layout satisfies the condition."""
    out = _holds(plan, constraint, columns)
    for other in constraint.parts[1:]:
        out = out | _holds(plan, other, columns)
    return out


def _holds(plan: Plan, constraint: Constraint, columns: Columns) -> Array:
    if constraint.name == "headroom":
        column = 1 - needed(plan, columns).device / plan.usable_bytes
    elif constraint.name == "grad_accum":
        column = columns.microbatches(plan.training.global_batch)
    else:
        column = getattr(columns, constraint.name)
    if constraint.operator in _COMPARE:
        return _COMPARE[constraint.operator](column, constraint.numbers[0])
    same: Array = np.zeros_like(column, dtype=bool)
    for number in constraint.numbers:
        same = same | (column == number)
    for code, size in codes(constraint):
        exact = True if size is None else columns.recompute_size == size
        same = same | ((column == code) & exact)
    return ~same if constraint.operator == "!=" else same
