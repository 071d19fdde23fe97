"""Tasks of workers for the lessons."""

from __future__ import annotations

from planner.inputs import catalog
from planner.lessons import learn
from planner.lessons.web import page as learn_page
from web.state import Pairs
from web.tasks import dumped


def lessons(pairs: Pairs) -> bytes:
    """The page of all lessons."""
    return dumped(learn_page.listed(pairs))


def lesson(pairs: Pairs, name: str) -> bytes:
    """The page of a lesson, at the inputs of an address."""
    with catalog.only_given({}):
        return dumped(learn_page.page(pairs, name))


def claims(_: Pairs) -> bytes:
    """The page of all claims."""
    return dumped(learn_page.claims())


def claims_document(_: Pairs) -> bytes:
    """The document of `dpplan learn coverage --json`."""
    return dumped(learn.claims())


def lessons_document(_: Pairs) -> bytes:
    """The document of `dpplan learn --json`."""
    return dumped(learn.listed())


def lesson_document(pairs: Pairs, name: str) -> bytes:
    """The document of `dpplan learn LESSON --json`."""
    with catalog.only_given({}):
        return dumped(learn.lesson(name, dict(pairs)))


TASKS = {
    "lessons": lessons,
    "lesson": lesson,
    "claims": claims,
    "claims_document": claims_document,
    "lessons_document": lessons_document,
    "lesson_document": lesson_document,
}
