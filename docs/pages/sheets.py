"""One long text as several pages: a folder with an index, a page per section or group of them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping

from pages.text import NOTICE

_LINK = re.compile(r"\]\(([^)\s:]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
INDEX = "index.md"


def anchor(heading: str) -> str:
    """The fragment of a link to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def file_of(title: str) -> str:
    """The name of the page with this title."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") + ".md"


def sheets(text: str, folder: str, groups: Mapping[str, str] | None = None) -> dict[str, str]:
    """Pages of docs/FOLDER by name, from a text as if it were docs/FOLDER.md.

    Every section (`## `) is a page of its own, except for those that `groups` gives to a page of
    several by its title, or to the index by none. Links follow."""
    groups = groups or {}
    head, sections = _sections(text)
    pages: dict[str, list[tuple[str, str]]] = {}
    titles: dict[str, str] = {}
    for heading, body in sections:
        title = groups.get(heading, heading)
        name = file_of(title) if title else INDEX
        titles[name] = title
        pages.setdefault(name, []).append((heading, body))
    home = {anchor(heading): name for name, parts in pages.items() for heading, _ in parts}
    home |= {
        anchor(below): name
        for name, parts in pages.items()
        for _, body in parts
        for _, below in _headings(body)
    }
    alone = {
        anchor(parts[0][0]): name
        for name, parts in pages.items()
        if name != INDEX and len(parts) == 1 and parts[0][0] == titles[name]
    }
    kept = pages.pop(INDEX, [])
    listed = "".join(f"- [{titles[name]}]({name})\n" for name in pages)
    out = {INDEX: "\n".join([head, listed, *(f"## {h}\n{body}" for h, body in kept)])}
    for name, parts in pages.items():
        out[name] = f"{NOTICE}# {titles[name]}\n" + "\n".join(
            _promoted(body) if anchor(heading) in alone else f"\n## {heading}\n{body}"
            for heading, body in parts
        )
    return {
        name: _linked(page, name, folder, home, alone).rstrip("\n") + "\n"
        for name, page in out.items()
    }


def _sections(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The text above the first section, and the sections with their headings."""
    parts: list[tuple[str, list[str]]] = [("", [])]
    for line, heading in _lines(text):
        if heading and heading[0] == "##":
            parts.append((heading[1], []))
        else:
            parts[-1][1].append(line)
    return "\n".join(parts[0][1]), [(h, "\n".join(lines)) for h, lines in parts[1:]]


def _lines(text: str) -> Iterator[tuple[str, tuple[str, str] | None]]:
    """Lines, each with the mark and the words of the heading that it is."""
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        heading = None if fenced else re.match(r"(#+) (.+)$", line)
        yield line, (heading.group(1), heading.group(2)) if heading else None


def _headings(text: str) -> list[tuple[str, str]]:
    return [heading for _, heading in _lines(text) if heading]


def _promoted(text: str) -> str:
    return "\n".join(line[1:] if heading else line for line, heading in _lines(text))


def _linked(text: str, page: str, folder: str, home: dict[str, str], alone: dict[str, str]) -> str:
    """The links of a page, which were written as if it lay in docs/."""

    def relinked(match: re.Match[str]) -> str:
        path, _, at = match.group(1).partition("#")
        if path in ("", f"{folder}.md") and at:
            where = home.get(at, INDEX)
            at = "" if alone.get(at) == where else at
            path = "" if where == page and at else where
        elif path in home.values() or path == INDEX:
            pass
        else:
            path = posixpath.relpath(path, folder)
        return f"]({path}{'#' + at if at else ''})"

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(relinked, part) for part in parts)
