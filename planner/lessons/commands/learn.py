"""`dpplan learn`: lessons whose figures are computed."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.error import PlanError
from planner.lessons.options import LearnOptions
from planner.specs.options.own import Output


def command(own: LearnOptions, out: Output) -> Answer:
    """Read a lesson of ten minutes whose figures are computed, with inputs of your own; without
    LESSON the list of them.

    Exit status: 0 answered, 2 the request is wrong.
    """
    from planner.lessons import learn
    from planner.lessons.view import lesson_blocks, list_blocks
    from planner.views.view import View

    if own.lesson is None:
        if own.set:
            raise PlanError("--set", own.set[0], "sets an input of a lesson: name the lesson")
        listed = learn.listed()
        return Answer(listed, view=lambda: View.of(list_blocks(listed)))
    found = learn.lesson(own.lesson, learn.settings(own.set))
    return Answer(found, view=lambda: View.of(lesson_blocks(found)))
