"""The documentation's site: every page is in its navigation once, and what Markdown of the
repository needs to be shown there."""

from __future__ import annotations

import importlib.util
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
_SPEC = importlib.util.spec_from_file_location("docs_site", ROOT / "docs" / "site.py")
assert _SPEC is not None
assert _SPEC.loader is not None
site = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(site)


def leaves(nav: list[Any]) -> list[str]:
    out: list[str] = []
    for entry in nav:
        inside = next(iter(entry.values())) if isinstance(entry, dict) else entry
        out += leaves(inside) if isinstance(inside, list) else [inside]
    return out


def test_every_page_is_in_the_navigation_once() -> None:
    nav = site.expanded(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"])
    pages = {path.relative_to(site.DOCS).as_posix() for path in site.DOCS.rglob("*.md")}
    assert Counter(leaves(nav)) == Counter({*pages, *site.ABOVE})


def test_folders_of_the_navigation_become_their_pages(tmp_path: Path) -> None:
    for name in ("log/a.md", "log/b.md", "log/index.md", "more/x.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# A\n", "utf-8")
    nav = [{"Log": ["log/"]}, {"More": "more/"}, {"Learn": ["learn/"]}, "index.md"]
    assert site.expanded(nav, tmp_path) == [
        {"Log": ["log/index.md", "log/a.md", "log/b.md"]},
        {"More": ["more/x.md"]},
        "index.md",
    ]


def test_links_out_of_the_site_become_text_and_others_follow() -> None:
    known = {"start.md", "log/index.md", "CHANGELOG.md"}
    text = "[a](../start.md#x) [b](../../CHANGELOG.md) [c](../../planner/api.py) [d](https://e.org)"
    assert site.linked(text, "log/index.md", known) == (
        "[a](../start.md#x) [b](../CHANGELOG.md) c [d](https://e.org)"
    )
    assert site.linked("[a](docs/start.md)", "CHANGELOG.md", known) == "[a](start.md)"


def test_lists_are_indented_as_python_markdown_reads_them() -> None:
    text = "- one\n  more\n\n  | a |\n  - two\n1. three\n   more\n\n    code\nplain\n\n    code\n"
    assert site.indented(text) == (
        "- one\n    more\n\n    | a |\n    - two\n1. three\n    more\n\n        code\n"
        "plain\n\n    code\n"
    )


def test_tools_of_the_site_are_pinned() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    tools = extras["optional-dependencies"]["docs"]
    assert tools
    assert all("==" in tool for tool in tools)
