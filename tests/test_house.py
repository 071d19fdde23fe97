"""The house keeps its rules: what an estimate imports, how long files are, and that the public face
explains itself."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import distribution

import grimp
import pytest
from command import ROOT, python
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from planner import api, plugins

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


def test_linear_algebra_is_of_one_thread() -> None:
    """Thread limits are set before numpy is loaded."""
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    order = list(sys.modules)
    assert order.index("planner") < order.index("numpy")


# the first command searches all stacks with their kernels
PLAIN = ["--stack", "megatron-core", "--stack-defaults"]
SMALL = ["--model", "gpt2", "--gpu", "a100", "--stack", "pytorch-ddp", "--stack-defaults"]
COMMANDS = [
    ["estimate", *REQUEST],
    ["estimate", *REQUEST, *PLAIN, "--json"],
    ["estimate", *REQUEST, *PLAIN, "--explain"],
    ["search", *REQUEST, *PLAIN, "--top", "1"],
    ["list", "gpus"],
    ["validate", "--suite", "small-runs"],
    ["schedule", "--schedule", "1f1b", "--pp", "4", "--microbatches", "8"],
    ["compare", *SMALL, "--sweep", "gpus=1..4"],
    ["recommend", *SMALL, "--max-gpus", "8"],
    ["batch", *SMALL, "--sweep", "gpus=1,2", "--tokens", "1B"],
    ["tune", *SMALL, "--seq-len", "512", "--method", "full-sgd"],
    ["read", "tests/data/recipes/megatron.sh", "--gpu", "a100", "--gpus", "8", PLAIN[-1]],
    ["strategies", "--model", "gpt2", "--gpus", "8", "--gpu", "a100"],
    ["rl", "--model", "gpt2", "--gpu", "a100", "--gpus", "2", "--response-length", "200"],
    ["allreduce", "--gpus", "16", "--gpu", "a100"],
]
# one process for all: what a command loads is what is there after it and was not before
ONE_BY_ONE = """
import json, sys
from planner.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["dpplan", *words]
    try:
        main()
    except SystemExit as ended:
        status = ended.code
    print(json.dumps([words, status or 0, sorted(sys.modules)]), file=sys.stderr)
"""


# needed only by other commands, or by none: each costs a plain estimate 5 to 70 ms
NOT_FOR_AN_ESTIMATE = {
    "http.client",
    "planner.inputs.listing",
    "planner.verbs.tune",
    "ssl",
    "web",
    *(f"planner.{part}" for part in plugins.PARTS),
}


def test_a_command_imports_nothing_heavy() -> None:
    answer = python(ONE_BY_ONE, json.dumps(COMMANDS), timeout=600)
    lines = [json.loads(line) for line in answer.stderr.splitlines()]
    assert [words for words, _, _ in lines] == COMMANDS
    assert not NOT_FOR_AN_ESTIMATE & set(lines[0][2])
    for words, status, modules in lines:
        items = {name.partition(".")[0] for name in modules}
        assert status in (0, 3), words
        assert not items & {*HEAVY, "rich", "yaml"}, words
        assert "numpy" in items


@pytest.mark.parametrize("words", [("--help",), ("estimate", "--help")])
def test_help_imports_neither_numpy_nor_the_planner(words: tuple[str, ...]) -> None:
    result = imported(*words)
    assert not result & {*HEAVY, "rich", "yaml", "numpy", "pydantic"}


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
    document = {name.partition(".")[0] for name in json.loads(done.stderr)}
    assert "rich" in document
    assert not document & set(HEAVY)


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CODE = [
    path
    for folder in ("planner", "web", "dpplan")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


@pytest.mark.parametrize("folder", ["planner", "web", "dpplan", "tests", "benchmarks", "docs"])
def test_a_long_file_says_why(folder: str) -> None:
    """One subject per file: beyond 500 lines its docstring gives the reason in a line "Long:
    ..."."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > LONGEST:
            sentence = ast.get_docstring(ast.parse(text)) or ""
            assert any(line.startswith("Long: ") for line in sentence.splitlines()), path


def test_planner_holds_the_ground_the_face_and_rooms() -> None:
    top = {path.name for path in (ROOT / "planner").glob("*.py")}
    ground = {"error.py", "ledger.py", "plugins.py", "units.py"}
    assert top == {"__init__.py", "api.py", *ground}


def test_the_floors_of_the_contract_are_those_of_contributing() -> None:
    floors = next(c for c in PROJECT["tool"]["importlinter"]["contracts"] if "containers" in c)
    rooms = [{"web"}, *(set(re.split(r" [|:] ", floor)) for floor in floors["layers"])]
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split("## Floors of the house")[1].split("\n## ")[0]
    numbered = re.findall(r"^\d+\. (.*(?:\n   .*)*)", section, re.MULTILINE)
    items = [set(re.findall(r"`([a-z]+)`[:,](?=\s)", line)) for line in numbered]
    assert len(rooms) <= 10  # and benchmarks, which stand on the commands
    assert len(items) == len(rooms)
    for floor, names in zip(rooms, items, strict=True):
        assert floor <= names, (floor, names)


def test_no_file_imports_in_a_circle() -> None:
    """Imports inside functions count: a circle that is closed late is one."""
    graph = grimp.build_graph("planner", "web")
    below = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    TopologicalSorter(below).prepare()  # raises CycleError, which names the circle


def test_no_line_escapes_the_formatter() -> None:
    switch = "# fmt: " + "skip"
    assert [path for path in CODE if switch in path.read_text(encoding="utf-8")] == []


def test_the_ratchet_of_the_linter_only_goes_down() -> None:
    """Complexity, arguments and numbers without a name: a smaller count belongs in pyproject."""
    counts = PROJECT["tool"]["dpplan"]["ratchet"]
    words = ["check", "planner", "web", "--select", ",".join(counts), "--output-format", "json"]
    command = [sys.executable, "-m", "ruff", *words, "--no-cache", "--exit-zero"]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    codes = [entry["code"] for entry in json.loads(answer.stdout)]
    assert {code: codes.count(code) for code in counts} == counts


# Phrases that a person of the field has to decode. A docstring states the result of a function in
# the field's terms: "Samples at reference speed", not a pronoun for them; "only the last layers".
DIALECT = re.compile(r"\b(what of|those of|that of|is no|are no|told|nobody)\b", re.IGNORECASE)
UNCLEAR = re.compile(
    r"\balone(?=[.;,:)]|$)|(?<!there )\b(is|are) (none|said)\b|\bof no\b|\b[Tt]he same of\b"
    r"|\basked for\b|\bnone of (it|them)\b|\bnothing is said\b|\bwhat of\b|\b[Tt]old\b|\bnobody\b"
    r"|\b(is|are) of\b|\bas asked\b|\bso many\b(?! that)|\bbut for\b|\bfor want of\b|\banew\b(?!:)"
    r"|(?<!there )(?<!why )\b(is|are) no [a-z]+(?<!er)\b(?! than)"
)
# Names that say nothing of their value: a layout, a request, a sentence has a name of its own.
VAGUE = frozenset(
    {"asked", "found", "held", "made", "of", "one", "own", "said", "there", "told", "what"}
)


@cache
def _files() -> list[tuple[str, list[ast.AST]]]:
    """(name in the repository, nodes) of all modules."""
    folders = ("planner", "web", "dpplan", "benchmarks", "docs", "tests")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [
        (path.relative_to(ROOT).as_posix(), [*ast.walk(ast.parse(path.read_text("utf-8")))])
        for path in paths
    ]


def _sentences(nodes: list[ast.AST]) -> Iterator[tuple[str, int, str]]:
    """(kind, line, text) of docstrings and of other texts with blanks in a module."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [node for node in nodes if isinstance(node, kinds)]
    for node in documented:
        yield "docstring", getattr(node, "lineno", 1), ast.get_docstring(node) or ""
    inner = {
        id(first.value)
        for node in documented
        for first in node.body[:1]
        if isinstance(first, ast.Expr)
    }
    for leaf in nodes:
        if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str) and id(leaf) not in inner:
            yield "text", leaf.lineno, leaf.value if " " in leaf.value else ""


def test_sentences_are_plain() -> None:
    """Docstrings, and the texts of messages, helps and documents; of tests only docstrings, whose
    texts are also what people type."""
    items = []
    for name, nodes in _files():
        for kind, line, text in _sentences(nodes):
            if kind == "text" and name.startswith("tests/"):
                continue
            wrong = UNCLEAR.findall(text)
            if kind == "docstring":
                wrong += DIALECT.findall(text)
                wrong += re.findall(r"\AWhat\b", text)
            if wrong:
                items.append(f"{name}:{line}: {text[:60]!r}")
    assert items == [], "\n".join(items)


def test_comments_are_plain() -> None:
    items = []
    unclear = re.compile(f"{DIALECT.pattern}|{UNCLEAR.pattern}")
    for folder in ("planner", "web", "dpplan", "benchmarks", "docs", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            with tokenize.open(path) as file:
                for token in tokenize.generate_tokens(file.readline):
                    if token.type == tokenize.COMMENT and unclear.search(token.string):
                        items.append(f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string}")
    assert items == [], "\n".join(items)


def _bound(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """(name, line) of functions, parameters and variables, without fields of classes."""
    fields = {
        id(node.target)
        for holder in nodes
        if isinstance(holder, ast.ClassDef)
        for node in holder.body
        if isinstance(node, ast.AnnAssign)
    }
    for node in nodes:
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if id(node) not in fields:
                yield node.id, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name != "of":  # of a class: `Space.of(...)`
                yield node.name, node.lineno
        elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name:
            yield node.name, node.lineno


def test_names_say_what_they_hold() -> None:
    """No function, parameter or variable is called `one`, `found` or `_own`."""
    vague = {
        f"{name}:{line}: {word}"
        for name, nodes in _files()
        for word, line in _bound(nodes)
        if word.strip("_") in VAGUE
    }
    assert sorted(vague) == [], "\n".join(sorted(vague))


def test_scripts_of_the_page_are_plain() -> None:
    """Names and comments of web/static, as of Python."""
    words = "|".join(VAGUE)
    named = rf"\b(?:const|let|var|function) (?:{words})\b|\(?\b(?:{words})\)? =>"
    phrases = re.compile(rf"//.*?(?:{DIALECT.pattern}|{UNCLEAR.pattern})|{named}")
    for path in sorted((ROOT / "web" / "static").glob("*.js")):
        lines = path.read_text("utf-8").splitlines()
        assert [line for line in lines if phrases.search(line)] == [], path.name


def test_helps_and_pages_are_plain() -> None:
    """Helps, tables of sentences, and the hand-written pages without code and generated blocks."""
    names = ("options.json", "foreign.json", "arguments.toml", "words.json", "not_modelled.toml")
    tables = [file for name in names for file in (ROOT / "planner").rglob(name)]
    texts = {str(file): file.read_text("utf-8") for file in tables}
    dated = ("log", "changelog")
    pages = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {ROOT / "CHANGELOG.md"}
    for page in pages:
        text = page.read_text("utf-8")
        if not text.startswith("<!-- Generated") and page.parent.name not in dated:
            result = r"^```.*?^ *```$|^<!-- begin.*?^<!-- end -->$|`nobody`"
            texts[str(page)] = re.sub(result, "", text, flags=re.MULTILINE | re.DOTALL)
    phrases = re.compile(
        r"\balone(?=[.;,:)\"]|$)|\bnobody\b|\bnothing is said\b|\b(?:is|are) of\b|\bas asked\b"
        r"|\bso many\b(?! that)|\bbut for\b|\bfor want of\b|\banew\b|\bwhat of\b|\btold\b",
        re.IGNORECASE,
    )
    values = {name: phrases.findall(text) for name, text in texts.items() if phrases.search(text)}
    assert values == {}


def needed(name: str, extras: frozenset[str]) -> Iterator[str]:
    """Names of the distributions that this one needs here, itself included."""
    yield name
    for text in distribution(name).requires or ():
        need = Requirement(text)
        wanted = [{"extra": extra} for extra in extras] or [{"extra": ""}]
        if need.marker is None or any(need.marker.evaluate(entry) for entry in wanted):
            yield from needed(need.name, frozenset(need.extras))


def test_everything_that_the_check_installs_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and line[0] != "#")
    pinned = {canonicalize_name(name) for name in pins}
    items = {canonicalize_name(name) for name in needed("dpplan", frozenset({"dev"}))}
    ours = {"dpplan"}
    cuda = {name for name in items if name.startswith(("nvidia-", "cuda-", "triton"))}
    assert items - ours - cuda <= pinned


def test_the_tests_that_security_names_are_there() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:fuzz/)?test_\w+\.py)(?:::(test_\w+))?`", text)
    assert len(named) > 20
    for file, test in named:
        assert f"def {test}" in (ROOT / "tests" / file).read_text(encoding="utf-8"), (file, test)


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
