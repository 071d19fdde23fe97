"""The house keeps its rules: what an estimate imports, how long files are, and that the public face
explains itself."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys

import pytest
from command import ROOT, python

from planner import api

# loads of code that an estimate has no use for
HEAVY = (
    "torch",
    "transformers",
    "fastapi",
    "uvicorn",
    "starlette",
    "jinja2",
    "plotly",
    "scipy",
    "pandas",
    "matplotlib",
    "psutil",
)
LONGEST = 500  # lines of a file: one subject each

REQUEST = ["--model", "llama-70b", "--gpus", "2048", "--gpu", "rtx4090"]
REPORT_MODULES = """
import atexit, json, sys
from planner.cli import main
def report():
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
atexit.register(report)
sys.argv[0] = "dpplan"
main()
"""


def imported(*words: str) -> set[str]:
    """Top-level modules that a piped command has imported by its end."""
    answer = python(REPORT_MODULES, *words)
    assert answer.status in (0, 3), answer.stderr
    return {name.partition(".")[0] for name in json.loads(answer.stderr)}


@pytest.mark.parametrize(
    "words",
    [
        ["estimate", *REQUEST],
        ["estimate", *REQUEST, "--json"],
        ["estimate", *REQUEST, "--explain"],
        ["search", *REQUEST, "--top", "1"],
        ["list", "gpus"],
        ["validate", "--suite", "small-runs"],
        ["schedule", "--schedule", "1f1b", "--pp", "4", "--microbatches", "8"],
        [
            "compare",
            "--model",
            "gpt2",
            "--gpu",
            "a100",
            "--sweep",
            "gpus=1..4",
            "--stack",
            "pytorch-ddp",
        ],
        [
            "recommend",
            "--model",
            "gpt2",
            "--gpu",
            "a100",
            "--max-gpus",
            "8",
            "--stack",
            "pytorch-ddp",
        ],
        [
            "batch",
            "--model",
            "gpt2",
            "--gpu",
            "a100",
            "--sweep",
            "gpus=1,2",
            "--stack",
            "pytorch-ddp",
            "--tokens",
            "1B",
        ],
        ["strategies", "--model", "gpt2", "--gpus", "8", "--gpu", "a100"],
        ["allreduce", "--gpus", "16", "--gpu", "a100"],
    ],
    ids=" ".join,
)
def test_a_command_imports_nothing_heavy(words: list[str]) -> None:
    found = imported(*words)
    assert not found & {*HEAVY, "rich", "yaml"}
    assert "numpy" in found


def test_help_imports_neither_numpy_nor_the_planner() -> None:
    found = imported("estimate", "--help")
    assert not found & {*HEAVY, "rich", "yaml", "numpy", "pydantic"}


def test_a_terminal_gets_rich_tables_and_nothing_else_heavy() -> None:
    """On a terminal the same command may use rich."""
    ours, theirs = os.openpty()
    try:
        words = [sys.executable, "-c", REPORT_MODULES, "list", "schedules"]
        done = subprocess.run(
            words,
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=True,
            timeout=60,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    found = {name.partition(".")[0] for name in json.loads(done.stderr)}
    assert "rich" in found
    assert not found & set(HEAVY)


@pytest.mark.parametrize("folder", ["planner", "web"])
def test_no_file_is_long(folder: str) -> None:
    long = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > LONGEST:
            long[str(path.relative_to(ROOT))] = lines
    assert long == {}


def test_every_public_name_of_the_api_is_there_and_explained() -> None:
    assert sorted(api.__all__) == api.__all__
    for name in api.__all__:
        thing = getattr(api, name)
        doc = inspect.getdoc(thing) or ""
        assert doc.strip().endswith((".", ".\n")), name
    public = [
        name
        for name, f in inspect.getmembers(api, inspect.isfunction)
        if f.__module__ == api.__name__ and name[0] != "_"
    ]
    for name in public:
        assert inspect.getdoc(getattr(api, name)), name


def test_every_module_says_what_it_is() -> None:
    for path in sorted((ROOT / "planner").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if text.strip():
            assert text.startswith('"""'), path
