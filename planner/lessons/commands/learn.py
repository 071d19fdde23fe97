"""`dpplan learn`: lessons whose figures are computed."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.error import PlanError
from planner.lessons.options import LearnOptions
from planner.specs.options.own import Output


def command(request: LearnOptions, out: Output) -> Answer:
    """Read a lesson of ten minutes whose figures are computed, with inputs of your own; without
    LESSON the list of them, with `coverage` all claims of our sources that they check.

    Exit status: 0 answered, 2 the request is wrong.
    """
    from planner.lessons import learn
    from planner.lessons.view import claim_blocks, lesson_blocks, list_blocks
    from planner.views.view import View

    if request.lesson is None:
        if request.set:
            raise PlanError("--set", request.set[0], "sets an input of a lesson: name the lesson")
        listed = learn.listed()
        return Answer(listed, view=lambda: View.of(list_blocks(listed)))
    if request.lesson == learn.COVERAGE and not request.set:
        claims = learn.claims()
        return Answer(claims, view=lambda: View.of(claim_blocks(claims)))
    lesson = learn.lesson(request.lesson, learn.settings(request.set))
    return Answer(lesson, view=lambda: View.of(lesson_blocks(lesson)))
