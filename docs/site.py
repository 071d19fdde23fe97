"""A hook of MkDocs that turns the Markdown of the repository into the site of the documentation.

Folders in the navigation become their pages; CHANGELOG.md, CONTRIBUTING.md and SECURITY.md, which
lie above docs/, become pages; links to files that are not pages become plain text; equations
between `$$` become MathML, which browsers render themselves; lists are indented as Python-Markdown
reads them.
"""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ABOVE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # pages beside docs/

_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_EQUATION = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)
_ITEM = re.compile(r"([-*]|\d+\.) ")


def expanded(nav: list[Any], docs: Path = DOCS) -> list[Any]:
    """The navigation with the pages of every folder that it names; an empty folder is left out."""
    out: list[Any] = []
    for entry in nav:
        if isinstance(entry, dict):
            ((title, inside),) = entry.items()
            if isinstance(inside, list):
                pages = expanded(inside, docs)
            elif inside.endswith("/"):
                pages = folder(inside, docs)
            else:
                out.append(entry)
                continue
            out += [{title: pages}] if pages else []
        elif entry.endswith("/"):
            out += folder(entry, docs)
        else:
            out.append(entry)
    return out


def folder(name: str, docs: Path = DOCS) -> list[str]:
    """The pages of a folder, its index first."""
    pages = [path.name for path in (docs / name).glob("*.md")]
    return [name + page for page in sorted(pages, key=lambda page: (page != "index.md", page))]


def on_config(config: Any) -> Any:
    config.nav = expanded(config.nav)
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for name in ABOVE:
        text = (DOCS.parent / name).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    known = {file.src_uri for file in files}
    parts = _FENCE.split(markdown)
    return "".join(
        part
        if part.lstrip().startswith("```")
        else indented(linked(part, page.file.src_uri, known))
        for part in parts
    )


def linked(text: str, page: str, known: set[str]) -> str:
    """Links of a page as they stand in the repository, as links of the site."""

    def relinked(match: re.Match[str]) -> str:
        mark, words, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match.group(0)
        path, _, anchor = target.partition("#")
        here = "" if page in ABOVE else "docs/" + posixpath.dirname(page)
        full = posixpath.normpath(posixpath.join(here, path))
        place = full if full in ABOVE else full.removeprefix("docs/")
        if place not in known:
            return words
        target_path = posixpath.relpath(place, posixpath.dirname(page) or ".")
        return f"{mark}[{words}]({target_path}{'#' + anchor if anchor else ''})"

    return _LINK.sub(relinked, text)


def indented(text: str) -> str:
    """Contents of list items indented by four spaces a level, where GitHub takes two or three."""
    out, inside = [], False
    for line in text.splitlines(keepends=True):
        if line.strip() and not line.startswith(" "):
            inside = _ITEM.match(line) is not None
        spaces = len(line) - len(line.lstrip(" "))
        level = -(-spaces // 3) if spaces == 3 else spaces // 2
        out.append("    " * level + line.lstrip(" ") if inside and level and line.strip() else line)
    return "".join(out)


def on_page_content(html_text: str, **_: Any) -> str:
    return _EQUATION.sub(lambda match: _mathml(html.unescape(match.group(1))), html_text)


def _mathml(tex: str) -> str:
    from latex2mathml.converter import convert

    return f'<div class="arithmatex">{convert(tex.strip(), display="block")}</div>'
