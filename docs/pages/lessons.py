"""docs/learn/: every lesson as a page, their list, and the table of the claims that they check."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from pages.text import NOTICE, table
from planner.lessons import learn
from planner.lessons.documents import Lesson
from planner.lessons.view import claims_lead, markdown

CLAIMS = 67  # of our sources that a reader could not check when they were counted


@cache
def lesson(name: str) -> Lesson:
    """A lesson at its start, with its claims."""
    return learn.lesson(name, {})


def pages() -> dict[str, Callable[[], str]]:
    """The function that writes each page."""
    makers: dict[str, Callable[[], str]] = {
        f"docs/learn/{name}.md": partial(_page, name) for name in learn.lessons()
    }
    return {"docs/learn/index.md": index, "docs/learn/coverage.md": coverage, **makers}


def _page(name: str) -> str:
    return NOTICE + markdown(lesson(name))


def index() -> str:
    """The list of lessons."""
    rows = [
        [f"[{entry.title}]({entry.name}.md)", entry.lead, str(entry.claims)]
        for entry in learn.listed().lessons
    ]
    return (
        f"{NOTICE}# Learn\n\n"
        "Lessons of ten minutes. Every figure is computed by dpplan when the page is made. Their"
        " inputs can be moved on the page of `dpplan serve`, under `/learn`, and with"
        " `dpplan learn NAME --set INPUT=VALUE`: the text follows. Each ends"
        " with what our sources claim and the command that checks it; [all claims](coverage.md)"
        " are in one table.\n\n" + table(["lesson", "question", ">claims"], rows)
    )


def coverage() -> str:
    """One row per claim: what was claimed, what dpplan says, by which command, where."""
    listed = learn.claims()
    rows = [
        [
            str(entry.number),
            entry.of,
            entry.claim,
            entry.verdict,
            f"`{entry.command}`",
            f"[{entry.lesson}]({entry.lesson}.md)",
        ]
        for entry in listed.claims
    ]
    return f"{NOTICE}# Claims of our sources\n\n{claims_lead(listed)}\n\n" + table(
        [">claim", "source", "says", "verdict", "command", "lesson"], rows
    )
