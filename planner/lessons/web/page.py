"""Lessons as pages: text with figures that a script, or the button of the form, makes again when an
input is moved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from planner.lessons import learn
from planner.lessons import view as shown
from planner.lessons.documents import LessonInput, LessonItem
from planner.lessons.web import chart as learn_chart
from planner.specs.base import PlanError
from planner.specs.document import plain
from web.render import rendered as template
from web.state import Pairs

_STEPS = 100  # of a slider between two ends
_DECADES = 100.0  # ends so far apart that a slider moves by factors
_PLACE = re.compile(r"\{(\d+)\}")
_LESSON = re.compile(r"\]\((\w+)\.md\)")  # of the same folder of the documentation
_DOCUMENT = re.compile(r"\[([^]]+)\]\(\.\./[^)]+\)")  # a page that is not here


def listed(_: Pairs) -> dict[str, Any]:
    """The page of all lessons."""
    return {
        "lessons": [(lesson.name, lesson.title, lesson.lead) for lesson in learn.listed().lessons]
    }


def claims() -> dict[str, Any]:
    """The page of all claims."""
    listed = learn.claims()
    return {"lead": shown.claims_lead(listed), "claims": plain(listed)["claims"]}


def page(pairs: Pairs, name: str) -> dict[str, Any]:
    """One lesson as HTML; at its start where the inputs are wrong, which it says."""
    problem = None
    try:
        lesson = learn.lesson(name, dict(pairs))
    except PlanError as error:
        if error.field != "--set":
            raise
        problem = error.remedy
        lesson = learn.lesson(name, {})
    names = [lesson.name for lesson in learn.listed().lessons]
    at = names.index(name)
    body = template(
        "lesson_body.html",
        lesson=lesson,
        item=_items(),
        markdown=_markdown,
        inputs=[_field(entry) for entry in lesson.inputs],
        problems=[*([problem] if problem else []), *lesson.problems],
        before=names[at - 1] if at else None,
        after=names[at + 1] if at + 1 < len(names) else None,
    )
    return {"title": lesson.title, "body": body}


def _field(entry: LessonInput) -> dict[str, Any]:
    """A field of the form and its slider."""
    if entry.choices:
        return {
            "one": entry,
            "most": len(entry.choices) - 1,
            "at": entry.choices.index(entry.value),
            "log": False,
        }
    assert entry.least is not None
    assert entry.most is not None
    is_log = entry.least > 0 and entry.most / entry.least >= _DECADES
    return {"one": entry, "most": _STEPS, "at": None, "log": is_log}


@cache
def _converter() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _markdown(text: str) -> Markup:
    """Text of a lesson as HTML; nothing in it is taken for a tag."""
    text = _DOCUMENT.sub(r"\1", _LESSON.sub(r"](/learn/\1)", text))
    return Markup(_converter().render(text))


def _items() -> Callable[[LessonItem], Markup]:
    """HTML of each item in turn; what the inputs change has an id that stays."""
    numbers = count(1)

    def item_html(item: LessonItem) -> Markup:
        return Markup("".join(_pieces(item, numbers)))

    return item_html


def _pieces(item: LessonItem, numbers: Iterator[int]) -> Iterator[str]:
    values = {
        "item": item,
        "shown": shown,
        "drawn": learn_chart.drawn,
        "numbers": numbers,
        "next": next,
        "prose": lambda text: _prose(text, item, numbers),
    }
    yield template("lesson_item.html", **values)


def _prose(text: str, item: LessonItem, numbers: Iterator[int]) -> Markup:
    figures = item.figures if isinstance(item.figures, list) else []

    def figure(match: re.Match[str]) -> str:
        value = escape(figures[int(match[1])])
        return f'<span class="live" id="live-{next(numbers)}" data-live>{value}</span>'

    return Markup(_PLACE.sub(figure, _markdown(text)))
