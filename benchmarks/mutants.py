"""Are faults in the composition found by `pytest -m core`?

    python benchmarks/mutants.py [--only TEXT] [tests/test_x.py ...]

tests/data/mutants.json lists faults: a text inside a function, as `ast.unparse` writes it, what it
becomes, and the file of tests that finds it, which is tried before all others. Each is put into the
loaded functions of a forked process, which runs the core tests until one fails. Exit status 1 where
a mutant survives; a text that is not there exactly once is an error.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
LIST = TESTS / "data" / "mutants.json"
PLACES = ("planner/estimate", "planner/formulas")


@dataclass(frozen=True)
class Mutant:
    file: str
    function: str
    was: str
    becomes: str
    first: str

    def __str__(self) -> str:
        return f"{self.file} {self.function}: {self.was!r} -> {self.becomes!r}"


def code_of(mutant: Mutant) -> CodeType:
    """The function's code with the fault in it."""
    path = ROOT / mutant.file
    tree = ast.parse(path.read_text())
    functions = [
        f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == mutant.function
    ]
    if len(functions) != 1:
        raise ValueError(f"{mutant}: no such function")
    body = ast.unparse(functions[0].body)
    if body.count(mutant.was) != 1:
        raise ValueError(f"{mutant}: the text is there {body.count(mutant.was)} times")
    functions[0].body = ast.parse(body.replace(mutant.was, mutant.becomes)).body
    codes = compile(tree, str(path), "exec").co_consts
    return next(c for c in codes if isinstance(c, CodeType) and c.co_name == mutant.function)


def apply(mutant: Mutant, code: CodeType) -> None:
    loaded = [
        each
        for each in gc.get_objects()
        if isinstance(each, FunctionType)
        and each.__code__.co_filename == str(ROOT / mutant.file)
        and each.__code__.co_qualname == mutant.function
    ]
    assert loaded, mutant
    for each in loaded:
        each.__code__ = code


def fails(mutant: Mutant | None, tests: list[str]) -> bool:
    code = code_of(mutant) if mutant else None
    child = os.fork()
    if not child:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        if mutant is not None and code is not None:
            apply(mutant, code)
        os._exit(pytest.main(["-x", "-m", "core", "-p", "no:cacheprovider", *tests]))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="mutants with this text in their line")
    parser.add_argument("tests", nargs="*", help="files of tests [default: all of core]")
    given = parser.parse_args()
    every = [Mutant(**entry) for entry in json.loads(LIST.read_text())]
    for mutant in every:
        code_of(mutant)
    sys.path.insert(0, str(TESTS))
    for file in (file for place in PLACES for file in sorted((ROOT / place).rglob("*.py"))):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        importlib.import_module(name.removesuffix(".__init__"))
    tests = given.tests or [str(TESTS)]
    if fails(None, tests):
        parser.error("tests fail without a mutant")
    tried = [mutant for mutant in every if given.only in str(mutant)]
    killed = 0
    for mutant in tried:
        started = time.monotonic()
        caught = (not given.tests and fails(mutant, [str(TESTS / mutant.first)])) or fails(
            mutant, tests
        )
        killed += caught
        took = time.monotonic() - started
        print("killed  " if caught else "SURVIVED", f"{took:4.0f} s", mutant, flush=True)
    print(f"{killed} of {len(tried)} killed")
    return int(killed < len(tried))


if __name__ == "__main__":
    sys.exit(main())
