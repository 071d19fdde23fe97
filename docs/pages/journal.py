"""docs/log/index.md: the log's pages by date."""

from __future__ import annotations

import itertools

from pages.text import NOTICE, ROOT

_HEAD = """# Log

What was tried, what it was worth, and what was refuted: a page per subject, dated, newest first.
The other pages say what is true now; these keep the numbers that led there, and are not changed
later.
"""


def page() -> str:
    """The index: titles of the pages, by the date that their names begin with."""
    paths = [path for path in (ROOT / "docs" / "log").glob("*.md") if path.name != "index.md"]
    entries = sorted((path.name[:10], path) for path in paths)
    parts = [NOTICE + _HEAD]
    for date, found in itertools.groupby(reversed(entries), key=lambda entry: entry[0]):
        lines = sorted(f"- [{_title(path.read_text('utf-8'))}]({path.name})" for _, path in found)
        parts.append(f"## {date}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _title(text: str) -> str:
    """The first heading, without the date that the index gives."""
    words = next(line for line in text.splitlines() if line.startswith("# ")).removeprefix("# ")
    words = words[10:].lstrip(",: ") if words[:4].isdigit() else words
    return words[:1].upper() + words[1:] or "First rounds"
