"""Every page of docs/extending, followed as a person would: in a copy of the package, its commands
are run and its differences applied, in the order of the page."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import ROOT, dpplan, python

TEXTS = {path.name: path.read_text("utf-8") for path in (ROOT / "docs/extending").glob("*.md")}
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = {page: _BLOCK.findall(text) for page, text in sorted(TEXTS.items())}
RUN = {page: [block for kind, block in BLOCKS[page] if kind == "sh"] for page in BLOCKS}
# pages that only name files of docs/examples: the package itself answers
PLAIN = [page for page, blocks in RUN.items() if len(blocks) == 1 and "dpplan" in blocks[0][:6]]
CHANGING = [page for page, blocks in RUN.items() if len(blocks) > 1]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout: the package, the examples, and `dpplan` on the path."""
    left = shutil.ignore_patterns("data")
    shutil.copytree(ROOT / "planner", tmp_path / "planner", ignore=left)
    (tmp_path / "planner/data").symlink_to(ROOT / "planner/data")
    (tmp_path / "hardware_profiles").symlink_to(ROOT / "hardware_profiles")
    shutil.copytree(ROOT / "docs/examples", tmp_path / "docs/examples")
    command = tmp_path / "bin/dpplan"
    command.parent.mkdir()
    command.write_text(
        f"#!{sys.executable}\nimport sys\nfrom planner.cli import main\n"
        "sys.argv[0] = 'dpplan'\nmain()\n",
        encoding="utf-8",
    )
    command.chmod(0o755)
    return tmp_path


def run(copy: Path, command: str) -> str:
    """Output of a command, which must succeed."""
    path = os.pathsep.join(
        [str(copy / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    env = {**os.environ, "PYTHONPATH": str(copy), "PATH": path, "COLUMNS": "100"}
    done = subprocess.run(
        ["sh", "-ec", command], cwd=copy, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def applied(copy: Path, difference: str) -> None:
    """Change a file as a difference says, whose old lines must stand there once."""
    name, *lines = difference.splitlines()
    file = copy / name.removeprefix("--- ")
    old, new = (
        "".join(line[1:] + "\n" for line in lines if line[0] in " " + sign) for sign in "-+"
    )
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1, (name, old)
    file.write_text(text.replace(old, new), encoding="utf-8")


def follow(copy: Path, page: str) -> None:
    """Run the commands of a page and apply its differences; what it shows of an output is what is
    printed, figures apart, which the documentation's own build compares."""
    printed: list[str] = []
    for kind, block in BLOCKS[page]:
        if kind == "sh":
            printed = run(copy, block).splitlines()
        elif kind == "diff":
            applied(copy, block)
        elif kind == "text" and printed:
            assert block.splitlines()[0] == printed[0], page


_COMMANDS = """
import json, sys
from planner.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["dpplan", *words]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
    print(end="\\0", flush=True)
"""


def outputs(copy: Path, *commands: str) -> list[str]:
    """Output of each command, in one process of the copy."""
    words = json.dumps([shlex.split(command) for command in commands])
    answer = python(_COMMANDS, words, folder=copy, timeout=120, PYTHONPATH=str(copy))
    assert answer.status == 0, answer.stderr
    return answer.stdout.split("\0")[:-1]


def estimates(copy: Path, *requests: str) -> list[Any]:
    """The document of each estimate."""
    return [
        json.loads(text)
        for text in outputs(copy, *(f"estimate --json {each}" for each in requests))
    ]


def _searched(copy: Path) -> None:
    """The schedule of the page has the bubble of 1F1B and more live activations; a search and the
    list of schedules know it."""
    where = "--model llama-70b --gpu h100 --gpus 64 --stack docs/examples/eager.toml"
    layout = "--tp 8 --pp 4 --recompute none --micro-batch 1 --stack-defaults"
    *answers, listed = outputs(
        copy,
        *(f"estimate {where} {layout} --schedule {s} --json" for s in ("1f1b", "1f1b-eager")),
        f"search {where} --schedule 1f1b-eager --json",
        "list schedules",
    )
    usual, eager, searched = map(json.loads, answers)
    assert eager["layout"]["schedule"] == "1f1b-eager"
    assert eager["step"]["components"]["bubble"] == usual["step"]["components"]["bubble"] > 0
    alive = [x["memory"]["components"]["activations"] for x in (usual, eager)]
    assert alive[1] == pytest.approx(7 / 4 * alive[0])
    assert searched["top"][0]["layout"]["schedule"] == "1f1b-eager"
    assert "1f1b-eager" in listed


def _answered(copy: Path) -> None:
    """The option, component, optimizer and keys of the page act."""
    given = (
        "--model llama-2-7b --gpu h100 --gpus 8 --zero 1 --micro-batch 1 --recompute none"
        " --stack-defaults"  # the states of the optimizers differ by their moments only
    )
    adam, adan, average = estimates(
        copy,
        given,
        f"{given} --optimizer adan --evaluation 200ms",
        f"{given} --stack docs/examples/ema.toml",
    )
    assert adan["step"]["components"]["evaluation"] == 0.2
    states = [x["memory"]["components"]["optimizer"] for x in (adam, adan, average)]
    assert states[1] / states[0] == pytest.approx((4 + 4 * 4) / (4 + 2 * 4))
    assert states[2] / states[0] == pytest.approx((4 + 2 * 4 + 4) / (4 + 2 * 4))
    speed = adan["throughput"]
    assert speed["tokens_per_day"] == pytest.approx(86_400 * speed["tokens_per_s"])


def _mixed(copy: Path) -> None:
    """A model with the part of the page has the size of the paper."""
    given = "--model docs/examples/retention.toml --gpu h100 --gpus 8 --stack-defaults"
    (answer,) = estimates(copy, given)
    assert answer["model"]["parameters"] == pytest.approx(1.3e9, rel=0.1)


def _added(copy: Path) -> None:
    """The mechanism of the page is one file: an option, a leaf of memory, a component of the
    step."""
    given = "--model gpt2 --gpu h100 --gpus 8 --stack pytorch-fsdp --zero 3 --micro-batch 1"
    answer, often = estimates(copy, f"{given} --lookahead 10", f"{given} --lookahead 1")
    slow = answer["memory"]["components"]["slow_weights"]
    assert slow == pytest.approx(answer["model"]["parameters"] / 8 * 4, rel=0.01)
    seconds = [x["step"]["components"]["lookahead"] for x in (answer, often)]
    assert seconds[1] == pytest.approx(10 * seconds[0])


CHECKS = {"schedule.md": _searched, "mechanism.md": _added, "code.md": _answered, "part.md": _mixed}


@pytest.mark.parametrize("page", CHANGING)
def test_page(page: str, copy: Path) -> None:
    follow(copy, page)
    CHECKS[page](copy)


@pytest.mark.parametrize("page", PLAIN)
def test_page_of_a_file(page: str) -> None:
    """The command of a page that changes nothing of the package prints what the page shows."""
    (command,) = RUN[page]
    answer = dpplan(*shlex.split(command)[1:], columns=100)
    assert answer.status == 0, answer.stderr
    (shown,) = (block for kind, block in BLOCKS[page] if kind == "text")
    assert shown.splitlines()[0] == answer.stdout.splitlines()[0]


_ROW = re.compile(r"^\| (an? .*) \| (\d+) \| \[\w+\]\((\S+\.md)#?(\S*)\) \|$", re.MULTILINE)


def files_of(page: str, section: str) -> set[str]:
    """Files that a page, or one of its sections, adds or edits; a profile that is only given by its
    path counts as the one that is shipped."""
    text = TEXTS[page]
    if section:
        parts = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)
        titles = [title.lower().replace(" ", "-") for title in parts[1::2]]
        text = parts[2 * titles.index(section, 1 if titles.count(section) > 1 else 0) + 2]
    edited = set(re.findall(r"^--- (\S+)$", text, re.MULTILINE))
    shipped = dict(re.findall(r"^cp (\S+) (\S+)$", text, re.MULTILINE))
    shown = set(re.findall(r"^`(docs/examples/\S+)`:?", text, re.MULTILINE))
    return edited | set(shipped.values()) | (set() if edited else shown - set(shipped))


def test_the_table_counts_the_files_of_each_page() -> None:
    text = TEXTS["index.md"]
    rows = _ROW.findall(text)
    assert len(rows) == text.count("\n| a")
    for title, count, page, section in rows:
        assert len(files_of(page, section)) == int(count), (title, files_of(page, section))
