"""The pipeline schedule of the chosen layout as bars over time, and all schedules at the same
size."""

from __future__ import annotations

from planner.api import Options, PlanError
from planner.inputs.calibration import stack_spec
from planner.specs.capabilities import values
from planner.specs.options import rows
from planner.specs.options.own import ScheduleOptions
from planner.verbs.schedule import draw
from planner.views import schedule_page
from planner.views.figures import Chart

_MOST_BARS = 2_000  # drawn; a step of more passes is drawn in slices


def chart(options: Options) -> Chart:
    """Gantt chart of the layout that an estimate with these options answers with."""
    table = rows(Options)
    given = {n: value for n, value in options.given().items() if "schedule" in table[n].verbs}
    drawn = draw(ScheduleOptions(), given)
    if drawn.document.pp == 1:
        raise PlanError(
            "--pp", 1, "there is no pipeline in this layout; fix pp above 1 to see its schedule"
        )
    taken = drawn.document.estimate  # a page always has a model
    return schedule_page.chart(
        drawn.document,
        drawn.program,
        drawn.timing,
        _MOST_BARS,
        values(stack_spec(taken.stack), "schedule") if taken else None,
    )
