"""Python as a text: what its statements give names and calls, where values are written out. Nothing
is ever run."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator, Mapping
from typing import Any

_DEEPEST = 150  # levels of statements and expressions; writing one out takes a call for each
_MOST = 10**12  # of a number in arithmetic
_OPERATIONS = {ast.Mult: operator.mul, ast.Add: operator.add, ast.Sub: operator.sub}


def tree(text: str) -> ast.Module:
    """The statements of a text. Raises ValueError with line and column where it does not parse."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        column = getattr(error, "offset", None) or 1
        raise ValueError(f"is not valid Python (line {line}, column {column})") from None
    level: list[ast.AST] = [module]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return module
    line = next((node.lineno for node in level if isinstance(node, ast.expr | ast.stmt)), 1)
    raise ValueError(f"nests Python more than {_DEEPEST} deep (line {line})")


def named(node: ast.AST, constants: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A name that a statement gives a plain value."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    value = getattr(node, "value", None)
    if isinstance(target, ast.Name) and isinstance(value, ast.expr):
        known = constant(value, constants)
        if known is not None:
            yield target.id, known


def constant(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    """A number, word or switch, or arithmetic of two numbers; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        sides = [constant(operand, constants) for operand in (node.left, node.right)]
        if all(isinstance(side, int) and abs(side) < _MOST for side in sides):
            return _OPERATIONS[type(node.op)](*sides)
    return None
