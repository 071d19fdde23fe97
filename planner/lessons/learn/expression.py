"""Expressions of lessons: names, keys of documents, arithmetic, comparisons, and formulas of
planner.formulas by name. Nothing else of Python is there."""

from __future__ import annotations

import ast
import importlib
import inspect
import math
import operator
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import planner.formulas
from planner.ledger import FORMULAS, Formula, first

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_PLAIN: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "sqrt": math.sqrt,
    "log2": math.log2,
    "sum": lambda table: sum(table.values()),
    "len": len,
    "at": lambda table, key, value: next(row for row in table if math.isclose(row[key], value)),
}
_NAMED = ("name", "id", "schedule", "gpu")  # keys by which an item of a list is known

Names = Callable[[str], Any]


class Missing(Exception):
    """A value that these inputs do not have."""


@cache
def formulas() -> dict[str, tuple[Formula, Callable[..., Any]]]:
    """Every formula of planner.formulas by its name."""
    modules = {
        f"formulas.{module.name}": importlib.import_module(f"planner.formulas.{module.name}")
        for module in pkgutil.iter_modules(planner.formulas.__path__)
    }
    return {
        formula.name: (formula, getattr(modules[formula.module], formula.name))
        for formula in FORMULAS.values()
        if formula.module in modules
    }


def value_of(text: str, names: Names) -> Any:
    """The value of an expression. names: the value under a name. Raises Missing where a document
    has no such value, ValueError for an invalid expression."""
    return _value(_tree(text), names)


def call_of(text: str, names: Names) -> tuple[Formula, dict[str, Any]] | None:
    """The formula that an expression is a call of, and what goes into it; None for any other."""
    tree = _tree(text)
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)):
        return None
    known = formulas().get(tree.func.id)
    if known is None:
        return None
    formula, function = known
    bound = inspect.signature(function).bind(**_arguments(tree, names))
    bound.apply_defaults()
    return formula, dict(bound.arguments)


@cache
def _tree(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def _value(node: ast.expr, names: Names) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names(name)
        case ast.Attribute() | ast.Subscript():
            return _item(node, names)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, names)
        case ast.BinOp(op=kind, left=left, right=right) if type(kind) in _BINARY:
            return _BINARY[type(kind)](_value(left, names), _value(right, names))
        case ast.Compare(ops=[kind], left=left, comparators=[right]) if type(kind) in _COMPARE:
            return _COMPARE[type(kind)](_value(left, names), _value(right, names))
        case ast.IfExp(test=test, body=then, orelse=other):
            return _value(then if _value(test, names) else other, names)
        case ast.Call(func=ast.Name(id=name)):
            return _called(node, name, names)
    raise ValueError(f"{ast.unparse(node)!r} is nothing that an expression of a lesson may hold")


def _called(node: ast.Call, name: str, names: Names) -> Any:
    if name in _PLAIN:
        return _PLAIN[name](*[_value(arg, names) for arg in node.args])
    if name in formulas():
        result = formulas()[name][1](**_arguments(node, names))
        return first(result) if np.size(result) == 1 else result
    raise ValueError(f"{name!r} is not a formula of planner.formulas")


def _arguments(node: ast.Call, names: Names) -> dict[str, Any]:
    if node.args:
        raise ValueError(f"{ast.unparse(node)!r}: a formula takes its numbers by name")
    return {str(keyword.arg): _value(keyword.value, names) for keyword in node.keywords}


def _item(node: ast.Attribute | ast.Subscript, names: Names) -> Any:
    """A key of a document, or an item of a list by number or by name."""
    inside = _value(node.value, names)
    wanted = node.attr if isinstance(node, ast.Attribute) else _value(node.slice, names)
    try:
        if isinstance(inside, list) and isinstance(wanted, str):
            return next(entry for entry in inside if wanted in [entry.get(key) for key in _NAMED])
        item = inside[wanted]
    except (KeyError, IndexError, StopIteration, TypeError):
        raise Missing(f"{ast.unparse(node)} is not there") from None
    if item is None:
        raise Missing(f"{ast.unparse(node)} has no value")
    return item
