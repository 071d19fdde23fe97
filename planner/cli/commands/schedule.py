"""`dpplan schedule`: one pipeline schedule, drawn, counted and compared with the others."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.specs.options import Given
from planner.specs.options.own import Output, ScheduleOptions


def command(given: Given, own: ScheduleOptions, out: Output) -> Answer:
    """Time a pipeline schedule, count what its ranks keep, draw it, and compare all schedules at
    the same size.

    Without --model, seconds come from the options below; with it, from the layout that an estimate
    chooses. Exit status: 0 answered, 2 the request is wrong.
    """
    from planner.verbs import schedule
    from planner.views import trace
    from planner.views.schedule import view
    from planner.views.text import width_of

    drawn = schedule.draw(own, given)

    def events() -> str:
        found = drawn.document
        about = {
            "makespan_s": found.makespan_s,
            "step_s": found.step_s,
            "bubble_frac": found.bubble_frac,
        }
        return trace.of_schedule(drawn.program, drawn.timing, drawn.title, about).text()

    return Answer(
        drawn.document,
        view=lambda: view(drawn.document, drawn.program, drawn.timing, width_of(out.plain)),
        files={"trace": events},
    )
