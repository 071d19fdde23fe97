"""Are faults in the composition found by `pytest -m core`?

    python benchmarks/mutants.py [--drawn 30] [--seed 1] [--list]

Two faults by name and others drawn with a seed from constants and operators inside functions of
planner/estimate and planner/formulas. Each is put into the loaded functions of a forked process,
which runs the core tests until one fails. Exit status 1 where a mutant survives.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType

import pytest

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("planner/estimate", "planner/formulas")
SWAPPED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
NAMED = (("sync.py", "_recode_s", "2", 0.5), ("step.py", "_window_share", "0.5", 0.8))


@dataclass(frozen=True)
class Mutant:
    file: Path
    function: str
    line: int
    at: int  # which node of the function, in the order of ast.walk
    was: str
    factor: float = 0.8  # of a number

    def __str__(self) -> str:
        place = f"{self.file.relative_to(ROOT)}:{self.line} {self.function}"
        return f"{place}: {self.was} -> {ast.unparse(changed(node_of(self), self.factor))}"


def functions(file: Path) -> Iterator[ast.FunctionDef]:
    tree = ast.parse(file.read_text())
    yield from (each for each in tree.body if isinstance(each, ast.FunctionDef))


def mutants(file: Path) -> Iterator[Mutant]:
    for function in functions(file):
        for at, node in enumerate(ast.walk(ast.Module(function.body, []))):
            number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
            swapped = isinstance(node, ast.BinOp) and type(node.op) in SWAPPED
            if number or (swapped and not is_neutral(node)):
                yield Mutant(file, function.name, node.lineno, at, ast.unparse(node))


def is_neutral(node: ast.BinOp) -> bool:
    """Whether the opposite operator comes to the same: x * 1.0, 0.0 * x, x + 0.0."""
    return any(isinstance(x, ast.Constant) and x.value in (0, 1) for x in (node.left, node.right))


def node_of(mutant: Mutant, function: ast.FunctionDef | None = None) -> ast.AST:
    every = [f for f in functions(mutant.file) if f.name == mutant.function]
    body = (function or every[0]).body
    return list(ast.walk(ast.Module(body, [])))[mutant.at]


def changed(node: ast.AST, factor: float) -> ast.AST:
    """A number times a factor (0 becomes 1), or the operator replaced by its opposite; in place."""
    if isinstance(node, ast.Constant):
        node.value = factor * node.value or 1
    elif isinstance(node, ast.BinOp):
        node.op = SWAPPED[type(node.op)]()
    return node


def apply(mutant: Mutant) -> None:
    tree = ast.parse(mutant.file.read_text())
    named = (f for f in tree.body if isinstance(f, ast.FunctionDef))
    function = next(f for f in named if f.name == mutant.function)
    changed(node_of(mutant, function), mutant.factor)
    codes = compile(tree, str(mutant.file), "exec").co_consts
    code = next(c for c in codes if isinstance(c, CodeType) and c.co_name == mutant.function)
    loaded = [
        one
        for one in gc.get_objects()
        if isinstance(one, FunctionType)
        and one.__code__.co_filename == str(mutant.file)
        and one.__code__.co_qualname == mutant.function
    ]
    assert loaded, mutant
    for one in loaded:
        one.__code__ = code


def is_killed(mutant: Mutant | None, tests: list[str]) -> bool:
    child = os.fork()
    if not child:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        if mutant is not None:
            apply(mutant)
        os._exit(pytest.main(["-x", "-m", "core", *tests]))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drawn", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print the mutants alone")
    parser.add_argument("tests", nargs="*", help="files of tests [default: all of core]")
    given = parser.parse_args()
    files = sorted(file for place in PLACES for file in (ROOT / place).rglob("*.py"))
    every = [mutant for file in files for mutant in mutants(file)]
    named = [
        replace(next(x for x in every if [x.file.name, x.function, x.was] == place), factor=factor)
        for *place, factor in NAMED
    ]
    drawn = named + random.Random(given.seed).sample(every, given.drawn)
    if given.list:
        print(*drawn, sep="\n")
        return 0
    sys.path.insert(0, str(ROOT / "tests"))
    for file in files:
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        importlib.import_module(name.removesuffix(".__init__"))
    tests = given.tests or [str(ROOT / "tests")]
    if is_killed(None, tests):
        parser.error("tests fail without a mutant")
    survived = 0
    for mutant in drawn:
        killed = is_killed(mutant, tests)
        survived += not killed
        print("killed  " if killed else "SURVIVED", mutant, flush=True)
    print(f"{len(drawn) - survived} of {len(drawn)} killed")
    return int(bool(survived))


if __name__ == "__main__":
    sys.exit(main())
