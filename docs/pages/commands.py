"""Commands that pages show, which have to be answered as the page states."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pages.text import run

QUESTIONS = "docs/questions"  # whose commands pages/questions.py runs
LOG = "docs/log"  # keeps what was run then
EXTENDING = "docs/extending/"
EXAMPLE = "docs/worked-example.md"  # whose commands read what those before them wrote

# what takes minutes of a node, and files that come from it
_MEASURES = re.compile(r"^dpplan (calibrate|serve|mcp|preflight)\b|my-node\.toml|cluster\.toml")
# where a page of docs/extending first changes the package
_STEP = re.compile(r"^```(?:diff\n|sh\ncp \S+ planner/)", re.MULTILINE)

# by command its exit status; None: a plan that fits or one that does not
Stated = dict[str, int | None]


def pages(root: Path) -> list[str]:
    """All pages of the documentation."""
    return [
        *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
        *sorted(path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md")),
    ]


def shown(root: Path) -> Stated:
    """Commands in code blocks and of examples to copy, which are never refused."""
    out: Stated = {}
    for name in pages(root):
        if name.startswith((QUESTIONS, LOG, EXAMPLE)) or not (root / name).exists():
            continue
        page = _as_shipped(name, (root / name).read_text(encoding="utf-8"))
        out |= _of_blocks(page)
        if name.startswith(EXTENDING):
            out |= dict.fromkeys(re.findall(r"^dpplan .*$", page, re.MULTILINE), 0)
    return out


def _as_shipped(name: str, page: str) -> str:
    """A page, one of docs/extending up to its first step: later commands need a changed copy
    of the package, in which tests/test_extending.py follows the page."""
    step = _STEP.search(page) if name.startswith(EXTENDING) else None
    return page[: step.start()] if step else page


def _of_blocks(page: str) -> Iterator[tuple[str, int | None]]:
    for block in re.finditer(r"```sh\n(.*?)```", page, re.DOTALL):
        after = page[block.end() : page.find("<!-- end -->", block.end())]
        stated = re.search(r"^Exit status (\d)\.$", after, re.MULTILINE)
        lines = block.group(1).splitlines()
        for line in lines:
            if line.startswith("dpplan ") and not _MEASURES.search(line):
                yield line, int(stated.group(1)) if stated and len(lines) == 1 else None


def wrong(command: str, stated: int | None) -> str | None:
    """None where the command is answered with the status that the page states."""
    status, out, err = run(command)
    if status in ((0, 3) if stated is None else (stated,)) and (out or status == 2):
        return None
    return f"{command} ends with status {status}: {err}"


def not_as_stated(commands: Stated) -> Iterable[str]:
    """A line for each command that is not answered as stated."""
    return [line for item in commands.items() if (line := wrong(*item)) is not None]
