"""docs/log/index.md: the pages of the log by title."""

from __future__ import annotations

from pages.text import NOTICE, ROOT

_HEAD = """# Log

What was tried, measured, and kept or refuted, with its date: one page per subject. The other pages
say what is true now; these keep the numbers that led there.

"""


def page() -> str:
    """The index: the titles of the pages, in alphabetical order."""
    paths = [path for path in (ROOT / "docs" / "log").glob("*.md") if path.name != "index.md"]
    titles = {path.read_text("utf-8").splitlines()[0].removeprefix("# "): path for path in paths}
    return (
        NOTICE + _HEAD + "".join(f"- [{title}]({titles[title].name})\n" for title in sorted(titles))
    )
